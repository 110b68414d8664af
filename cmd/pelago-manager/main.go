// Command pelago-manager runs the controllers of Pelago, or, with --rooms=auth, the
// endpoint at which invited clusters ask for their identity.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pelago-dev/pelago/internal/serving"
)

// version is set when the program is built from a checkout with a history.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	socket, err := serving.Inherit(os.Getenv(socketVariable))
	if err == nil {
		context.AfterFunc(ctx, socket.Close)
		err = start(ctx, os.Args[1:], socket)
	}
	if why := (*interruption)(nil); errors.As(err, &why) {
		fmt.Fprintln(os.Stderr, "Beginning anew:", err)
		err = anew(ctx, why.pause(), socket)
	}
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
