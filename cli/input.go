package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// mostToken bounds the line with a token, in bytes.
const mostToken = 4096

// unless waits for what a read returns, but no longer than the context lasts: nothing ends a read of standard input, and
// who interrupts a command waits for nobody to type. What is read after that is lost.
func unless(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type result struct {
		text []byte
		err  error
	}
	done := make(chan result, 1)
	go func() {
		text, err := read()
		done <- result{text, err}
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case r := <-done:
		return r.text, r.err
	}
}

// readToken replaces the token "-" by a line of input, or what there is until its end.
func readToken(ctx context.Context, token string, in io.Reader) (string, error) {
	if token != "-" {
		return token, nil
	}
	text, err := unless(ctx, func() ([]byte, error) {
		line, err := bufio.NewReader(io.LimitReader(in, mostToken)).ReadBytes('\n')
		if err == io.EOF {
			err = nil
		}
		return line, err
	})
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
