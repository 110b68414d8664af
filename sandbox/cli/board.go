package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// board shows progress: on a terminal one line per cluster, written in place;
// elsewhere a line per change.
type board struct {
	mu    sync.Mutex
	w     io.Writer
	live  bool
	start time.Time
	now   func() time.Time
	order []string
	lines map[string]string
	drawn int
}

func newBoard(w io.Writer, now func() time.Time) *board {
	return &board{w: w, live: terminal(w), start: now(), now: now, lines: map[string]string{}}
}

// set changes the line of a subject; the empty one is the sandbox itself.
func (b *board) set(subject, line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines[subject] == line {
		return
	}
	if _, ok := b.lines[subject]; !ok {
		b.order = append(b.order, subject)
	}
	b.lines[subject] = line
	if b.live {
		b.draw()
		return
	}
	fmt.Fprintln(b.w, b.line(subject))
}

func (b *board) line(subject string) string {
	name := subject
	if name == "" {
		name = "sandbox"
	}
	return fmt.Sprintf("%6.1fs  %-10s  %s", b.now().Sub(b.start).Seconds(), name, b.lines[subject])
}

func (b *board) draw() {
	width := 100
	if file, ok := b.w.(*os.File); ok {
		if w, _, err := term.GetSize(int(file.Fd())); err == nil && w > 10 {
			width = w
		}
	}
	if b.drawn > 0 {
		fmt.Fprintf(b.w, "\x1b[%dA", b.drawn)
	}
	for _, subject := range b.order {
		text := []rune(b.line(subject))
		fmt.Fprintf(b.w, "\x1b[2K%s\n", string(text[:min(len(text), width-1)]))
	}
	b.drawn = len(b.order)
}

// close leaves the last state on the screen.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drawn = 0
}
