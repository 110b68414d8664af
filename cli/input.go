package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// mostToken bounds the line with a token, in bytes.
const mostToken = 4096

// errTooMuch says that an input has more bytes than are read.
var errTooMuch = errors.New("it is too long")

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

// readWhole reads to the end of what has so many bytes at most: a part of it could mean something else.
func readWhole(in io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("%w, at most %d bytes", errTooMuch, most)
	}
	return text, err
}

// readToken replaces the token "-" by a line of input, or what there is until its end.
func readToken(ctx context.Context, token string, in io.Reader) (string, error) {
	if token != "-" {
		return token, nil
	}
	text, err := unless(ctx, func() ([]byte, error) {
		line, err := bufio.NewReader(io.LimitReader(in, mostToken+1)).ReadBytes('\n')
		switch {
		case len(line) > mostToken:
			return nil, fmt.Errorf("the line with the token has more than %d bytes; give the token alone, as the provider has printed it", mostToken)
		case err == io.EOF:
			err = nil
		}
		return line, err
	})
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
