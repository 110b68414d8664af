package screen

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
	"k8s.io/utils/clock"
)

// frameEvery is how often the spinner of a terminal turns.
const frameEvery = 120 * time.Millisecond

var frames = []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")

// Progress tells what is going on: on a terminal in one line with a spinner that goes
// away, elsewhere in a line per change.
type Progress struct {
	out      io.Writer
	terminal bool
	stop     chan struct{}
	stopped  chan struct{}

	mu    sync.Mutex
	text  string
	frame int
}

// Start begins to tell progress. Stop has to be called.
func Start(out io.Writer, terminal bool, c clock.WithTicker) *Progress {
	p := &Progress{out: out, terminal: terminal, stop: make(chan struct{}), stopped: make(chan struct{})}
	if !terminal {
		close(p.stopped)
		return p
	}
	go p.spin(c)
	return p
}

// Step says what is going on now. Saying the same again is no news.
func (p *Progress) Step(format string, args ...any) {
	text := line(fmt.Sprintf(format, args...))
	p.mu.Lock()
	defer p.mu.Unlock()
	if text == p.text {
		return
	}
	p.text = text
	if p.terminal {
		p.draw()
		return
	}
	fmt.Fprintln(p.out, text)
}

// Note writes a line that stays, above the one that changes.
func (p *Progress) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
	fmt.Fprintln(p.out, Clean(fmt.Sprintf(format, args...)))
	if p.terminal && p.text != "" {
		p.draw()
	}
}

// Stop ends the telling and clears the line. It may be called twice.
func (p *Progress) Stop() {
	p.mu.Lock()
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	p.mu.Unlock()
	<-p.stopped
}

func (p *Progress) spin(c clock.WithTicker) {
	defer close(p.stopped)
	tick := c.NewTicker(frameEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			fmt.Fprint(p.out, "\r\x1b[K")
			return
		case <-tick.C():
			p.mu.Lock()
			p.frame++
			if p.text != "" {
				p.draw()
			}
			p.mu.Unlock()
		}
	}
}

// draw writes the line again, cut so that it never wraps: what has wrapped is not written over. The
// terminal may have got another width since the last time.
func (p *Progress) draw() {
	width := min(Width, columns(p.out))
	fmt.Fprintf(p.out, "\r\x1b[K%c %s", frames[p.frame%len(frames)], cut(p.text, max(width-3, 1)))
}

// columns is how many the terminal behind w has, Width if that is not known.
func columns(w io.Writer) int {
	if file, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(file.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return Width
}
