package machine

import (
	"context"
	"strings"
	"testing"
	"time"
)

func TestRun(t *testing.T) {
	m := supervisor(t)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.Run(ctx, shell("good", "echo once")); err != nil {
		t.Fatalf("a unit that succeeds: %v", err)
	}
	if err := m.Run(ctx, shell("good", "exit 1")); err != nil {
		t.Errorf("one that has succeeded is not run again: %v", err)
	}
	err := m.Run(ctx, shell("bad", "echo the reason; exit 3"))
	if err == nil || !strings.Contains(err.Error(), "the reason") {
		t.Errorf("a unit that fails: %v, want an error with its log", err)
	}
	if err := m.Run(ctx, shell("bad", "exit 0")); err != nil {
		t.Errorf("one that has failed is run again: %v", err)
	}
	short, stop := context.WithTimeout(ctx, 100*time.Millisecond)
	defer stop()
	if err := m.Run(short, shell("long", "sleep 1000")); err == nil || short.Err() == nil {
		t.Errorf("a unit that does not end: %v, want the end of the context", err)
	}
}
