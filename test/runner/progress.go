package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	redrawEvery = 200 * time.Millisecond
	remindEvery = time.Minute // where lines cannot be redrawn
	lineWidth   = 100
)

// progress shows that a step is running: a line redrawn on a terminal, a line a minute
// elsewhere.
type progress struct {
	out      io.Writer
	name     string
	terminal bool
	begin    time.Time
	end      chan struct{}
	ended    sync.WaitGroup

	mu   sync.Mutex
	note string
}

// startProgress announces a step and shows its progress until stop.
func startProgress(out io.Writer, s step) *progress {
	p := &progress{out: out, name: s.name, terminal: isTerminal(out), begin: time.Now(), end: make(chan struct{})}
	if !p.terminal {
		fmt.Fprintf(out, "%-18s %s\n", s.name, s.proves)
	}
	every := remindEvery
	if p.terminal {
		every = redrawEvery
	}
	p.ended.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-p.end:
				return
			case <-tick.C:
				p.draw()
			}
		}
	})
	return p
}

// set says what the step is doing now.
func (p *progress) set(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = note
}

func (p *progress) draw() {
	p.mu.Lock()
	note := p.note
	p.mu.Unlock()
	line := fmt.Sprintf("%-18s %6s  %s", p.name, short(time.Since(p.begin)), printable(note))
	if !p.terminal {
		fmt.Fprintln(p.out, line)
		return
	}
	fmt.Fprintf(p.out, "\r\033[K%s", line)
}

func (p *progress) stop() {
	close(p.end)
	p.ended.Wait()
	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
}

// printable cuts a line to the width of the display and takes control characters out.
func printable(line string) string {
	line = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, line)
	if runes := []rune(line); len(runes) > lineWidth-27 {
		return string(runes[:lineWidth-27])
	}
	return line
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" || os.Getenv("CI") == "true" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// short prints a duration as people say it: 4.2s, 37s, 5m03s.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	}
	d = d.Round(time.Second)
	return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
}
