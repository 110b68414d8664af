package verify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

// execute sends input through a command, then wants an exit code back.
func execute(ctx context.Context, e *env) error {
	input := strings.Repeat("a line of the input\n", 10_000)
	out, err := e.exec(ctx, web(0), strings.NewReader(input), "cat")
	if err != nil {
		return err
	}
	if out != input {
		return fmt.Errorf("cat returned %d bytes of %d, or others", len(out), len(input))
	}
	var code utilexec.CodeExitError
	if _, err = e.exec(ctx, web(0), nil, "sh", "-c", "exit 7"); !errors.As(err, &code) || code.Code != 7 {
		return fmt.Errorf("exit code 7 arrived as %w", orNone(err))
	}
	return nil
}

func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// logs follows a log and has the pod write one line at a time: each must arrive
// before the next is asked for.
func logs(ctx context.Context, e *env) error {
	const script = "mkfifo /work/say; while :; do cat /work/say; done"
	if err := e.createPod(ctx, e.pod(e.slug, script)); err != nil {
		return err
	}
	if _, err := e.ready(ctx, e.slug); err != nil {
		return err
	}
	stream, err := e.client.CoreV1().Pods(e.namespace).GetLogs(e.slug, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("following the log: %w", err)
	}
	defer func() { _ = stream.Close() }()
	lines := bufio.NewReader(stream)
	for _, word := range []string{"one", "two", "three"} {
		if _, err := e.exec(ctx, e.slug, nil, "sh", "-c", "until [ -p /work/say ]; do usleep 50000; done; echo "+word+" > /work/say"); err != nil {
			return err
		}
		if err := wantLine(ctx, lines, word); err != nil {
			return fmt.Errorf("following the log: %w", err)
		}
	}
	return nil
}

// attach speaks with the program of a pod, which ends when its input does.
func attach(ctx context.Context, e *env) error {
	p := e.pod(e.slug, `while read -r line; do echo "you said $line"; done`)
	p.Spec.Containers[0].Stdin, p.Spec.Containers[0].StdinOnce = true, true
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	if err := e.createPod(ctx, p); err != nil {
		return err
	}
	if _, err := e.ready(ctx, p.Name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	input, say := io.Pipe()
	output, heard := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		u := e.podURL(p.Name, "attach", &corev1.PodAttachOptions{Container: mainContainer, Stdin: true, Stdout: true, Stderr: true})
		err := e.stream(ctx, u, remotecommand.StreamOptions{Stdin: input, Stdout: heard, Stderr: io.Discard})
		_ = heard.CloseWithError(orEOF(err))
		_ = input.CloseWithError(io.ErrClosedPipe)
		ended <- err
	}()
	if err := talk(ctx, say, bufio.NewReader(output)); err != nil {
		_ = say.Close()
		cancel()
		<-ended
		return err
	}
	select {
	case err := <-ended:
		if err != nil {
			return fmt.Errorf("attaching: ending the input: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("attaching: the stream did not end with its input: %w", ctx.Err())
	}
}

// talk says two words, hears each back, and ends the input.
func talk(ctx context.Context, say io.WriteCloser, lines *bufio.Reader) error {
	for _, word := range []string{"one", "two"} {
		if _, err := io.WriteString(say, word+"\n"); err != nil {
			return fmt.Errorf("attaching: %w", err)
		}
		if err := wantLine(ctx, lines, "you said "+word); err != nil {
			return fmt.Errorf("attaching: %w", err)
		}
	}
	if err := say.Close(); err != nil {
		return fmt.Errorf("attaching: %w", err)
	}
	return nil
}

func orEOF(err error) error {
	if err == nil {
		return io.EOF
	}
	return err
}

// wantLine reads a line and compares it; it gives up with ctx, but leaves its
// reader to whoever closes the stream.
func wantLine(ctx context.Context, lines *bufio.Reader, want string) error {
	const patience = 20 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type read struct {
		line string
		err  error
	}
	got := make(chan read, 1)
	go func() {
		line, err := lines.ReadString('\n')
		got <- read{strings.TrimSpace(line), err}
	}()
	select {
	case r := <-got:
		if r.err != nil {
			return fmt.Errorf("instead of %q: %w", want, r.err)
		}
		if r.line != want {
			return fmt.Errorf("%q instead of %q", r.line, want)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%q has not arrived: %w", want, ctx.Err())
	}
}

// forward fetches through a forwarded port, twice over one forwarding.
func forward(ctx context.Context, e *env) error {
	port, done, err := e.forwardTo(ctx, web(0), httpPort)
	if err != nil {
		return err
	}
	defer done()
	local := *e
	local.Dial = (&net.Dialer{}).DialContext // the caller's may lead elsewhere
	for range 2 {
		a, err := local.fetchFromHost(ctx, fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return err
		}
		if a.name != web(0) {
			return fmt.Errorf("%s answered instead of %s", a.name, web(0))
		}
	}
	return nil
}
