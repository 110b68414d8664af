package verify

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
)

// podURL is the address of a subresource of a pod.
func (e *env) podURL(pod, subresource string, options runtime.Object) *url.URL {
	r := e.client.CoreV1().RESTClient().Post().Namespace(e.namespace).Resource("pods").Name(pod).SubResource(subresource)
	if options != nil {
		r = r.VersionedParams(options, scheme.ParameterCodec)
	}
	return r.URL()
}

// stream runs over a WebSocket, which every API server since 1.31 speaks.
func (e *env) stream(ctx context.Context, u *url.URL, options remotecommand.StreamOptions) error {
	x, err := remotecommand.NewWebSocketExecutor(e.Config, http.MethodGet, u.String())
	if err != nil {
		return fmt.Errorf("preparing a stream: %w", err)
	}
	return x.StreamWithContext(ctx, options)
}

// exec runs a command in a pod and returns what it printed. An exit code other
// than 0 is an error that holds what it printed as complaint.
func (e *env) exec(ctx context.Context, pod string, stdin io.Reader, command ...string) (string, error) {
	var out bytes.Buffer
	err := e.execTo(ctx, pod, stdin, &out, command...)
	return out.String(), err
}

func (e *env) execTo(ctx context.Context, pod string, stdin io.Reader, stdout io.Writer, command ...string) error {
	var complaint bytes.Buffer
	u := e.podURL(pod, "exec", &corev1.PodExecOptions{
		Container: mainContainer, Command: command, Stdin: stdin != nil, Stdout: true, Stderr: true,
	})
	err := e.stream(ctx, u, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: &complaint})
	if err != nil {
		return fmt.Errorf("running %q in pod %s: %w %s", shorten(strings.Join(command, " "), 80), pod, err, shorten(complaint.String(), 300))
	}
	return nil
}

// forwardTo opens a port of this machine that leads to a port of a pod. Done
// ends it and waits for that.
func (e *env) forwardTo(ctx context.Context, pod string, port int) (local uint16, done func(), err error) {
	socket, err := portforward.NewSPDYOverWebsocketDialer(e.podURL(pod, "portforward", nil), e.Config)
	if err != nil {
		return 0, nil, fmt.Errorf("preparing a port-forward: %w", err)
	}
	stop, ready, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	var said bytes.Buffer
	f, err := portforward.NewOnAddresses(socket,
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, stop, ready, io.Discard, &said)
	if err != nil {
		return 0, nil, fmt.Errorf("preparing a port-forward: %w", err)
	}
	go func() { ended <- f.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-ended:
		return 0, nil, fmt.Errorf("forwarding a port: %w", err)
	case <-ctx.Done():
		close(stop)
		return 0, nil, fmt.Errorf("forwarding a port: %w", ctx.Err())
	}
	done = func() { close(stop); <-ended }
	ports, err := f.GetPorts()
	if err != nil {
		done()
		return 0, nil, fmt.Errorf("forwarding a port: %w", err)
	}
	return ports[0].Local, done, nil
}

// shorten cuts a text that is only there to explain.
func shorten(s string, most int) string {
	s = strings.TrimSpace(s)
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
