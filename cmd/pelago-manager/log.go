package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// newLogger makes the program's logger: a line of JSON per message, and two levels.
func newLogger(out io.Writer, level string) (logr.Logger, error) {
	options := &slog.HandlerOptions{}
	switch level {
	case "info":
		options.Level = slog.LevelInfo
	case "debug": // V(1); more than that is other libraries' talk
		options.Level = slog.LevelInfo - 1
	default:
		return logr.Logger{}, fmt.Errorf("--log-level: %q is unknown; use info or debug", level)
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(out, options)), nil
}

// useLogger makes the libraries of Kubernetes use the same logger.
func useLogger(logger logr.Logger) {
	ctrl.SetLogger(logger)
	klog.SetLogger(logger.WithName("kubernetes"))
}
