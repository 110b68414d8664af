package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// maxOutput bounds what is read of a command in a pod, in bytes.
const maxOutput = 1 << 20

// streamer runs commands in pods of the cluster that a config reaches, with streams; what they
// write to their standard error is part of the error that they end with. An in that is nil is
// none.
func streamer(config *rest.Config) func(ctx context.Context, namespace, pod string, command []string, in io.Reader, out io.Writer) error {
	return func(ctx context.Context, namespace, pod string, command []string, in io.Reader, out io.Writer) error {
		typed, err := kubernetes.NewForConfig(config)
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", config.Host, err)
		}
		url := typed.CoreV1().RESTClient().Get().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Command: command, Stdin: in != nil, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
		stream, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
		if err != nil {
			return fmt.Errorf("connecting to pod %s: %w", pod, err)
		}
		var errs bounded
		if err := stream.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out, Stderr: &errs}); err != nil {
			return fmt.Errorf("running %s in pod %s: %w %s", command[0], pod, err, strings.TrimSpace(errs.String()))
		}
		return nil
	}
}

// executor runs commands in pods, and returns what they write to their standard output.
func executor(config *rest.Config) func(ctx context.Context, namespace, pod string, command []string) (string, error) {
	stream := streamer(config)
	return func(ctx context.Context, namespace, pod string, command []string) (string, error) {
		var out bounded
		err := stream(ctx, namespace, pod, command, nil, &out)
		return out.String(), err
	}
}

// bounded keeps the first maxOutput bytes.
type bounded struct{ bytes.Buffer }

// Write keeps what there is room for, and takes all.
func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), max(0, maxOutput-b.Len()))])
	return len(p), nil
}
