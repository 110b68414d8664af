package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// What is asked of pods again and again is asked by this process: kubectl as users have it takes a third of a second
// of a processor to begin, of which tests that wait would use all there is.

// Exec runs a command in a pod's only container and returns what it wrote to standard output. The error of one
// that fails ends with its exit code and what it wrote to standard error.
func (c *Continuum) Exec(ctx context.Context, cluster, namespace, pod string, command ...string) (string, error) {
	pods, err := podClient(c.Configs[cluster])
	if err != nil {
		return "", err
	}
	asked := pods.Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(c.Configs[cluster], "GET", asked.URL().String())
	if err != nil {
		return "", fmt.Errorf("connecting to pod %s: %w", pod, err)
	}
	var stdout, stderr bytes.Buffer
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr}); err != nil {
		return stdout.String(), fmt.Errorf("running %s in pod %s: %w\n%s", command[0], pod, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Logs returns the last lines that a pod's only container wrote; all if tail is 0.
func (c *Continuum) Logs(ctx context.Context, cluster, namespace, pod string, tail int64) (string, error) {
	pods, err := podClient(c.Configs[cluster])
	if err != nil {
		return "", err
	}
	options := &corev1.PodLogOptions{}
	if tail > 0 {
		options.TailLines = &tail
	}
	text, err := pods.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log").
		VersionedParams(options, scheme.ParameterCodec).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the logs of pod %s: %w", pod, err)
	}
	return string(text), nil
}

// podClient asks an API server about pods.
func podClient(config *rest.Config) (*rest.RESTClient, error) {
	own := rest.CopyConfig(config)
	own.GroupVersion, own.APIPath = &corev1.SchemeGroupVersion, "/api"
	own.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	return client, nil
}
