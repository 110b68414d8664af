package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
)

// lives is the first argument of a process that the kubelet runs beside these, to ask whether the second one lives. It
// asks at a socket of the container's own: a port of the node another program may have, and an agent that is killed
// for that takes the node's tunnels with it.
const lives = "alive"

// aliveLimit is how long an answer may take, aliveWord what it is, and alivePause when it is tried again to give any.
const (
	aliveLimit = 3 * time.Second
	aliveWord  = "alive\n"
	alivePause = time.Second
)

// answer says to whoever asks at a socket that this process lives, until ctx ends. Without a name it does nothing.
// What fails is tried again: an agent that cannot be asked is ended by the kubelet, with its tunnels.
func answer(ctx context.Context, socket string, logger logr.Logger) {
	for socket != "" && ctx.Err() == nil {
		if err := answerAt(ctx, socket); err != nil {
			logger.Error(err, "whether the agent lives cannot be asked")
		}
		select {
		case <-ctx.Done():
		case <-time.After(alivePause):
		}
	}
}

// answerAt answers until ctx ends or something fails.
func answerAt(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // an earlier process has left it
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		conn, err := listener.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("accepting who asks: %w", err)
		}
		_ = conn.SetDeadline(time.Now().Add(aliveLimit))
		_, _ = io.WriteString(conn, aliveWord) // who asks sees whether it came
		_ = conn.Close()
	}
}

// ask is what the kubelet runs.
func ask(args []string) error {
	flags := flag.NewFlagSet("pelago-agent "+lives, flag.ContinueOnError)
	socket := flags.String("socket", "", "what --alive-socket of the agent is")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; there are only flags, see --help", flags.Arg(0))
	}
	until := time.Now().Add(aliveLimit)
	conn, err := (&net.Dialer{Deadline: until}).Dial("unix", *socket)
	if err != nil {
		return fmt.Errorf("asking whether the agent lives: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(until)
	b, err := io.ReadAll(io.LimitReader(conn, int64(len(aliveWord))))
	if err == nil && string(b) != aliveWord {
		err = errors.New("it does not say so")
	}
	if err != nil {
		return fmt.Errorf("asking whether the agent lives: %w", err)
	}
	return nil
}
