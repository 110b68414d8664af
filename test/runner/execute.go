package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// graceTime is how long a step may take to end after it was asked to.
	graceTime = 10 * time.Second
	// tailLines is how much of a failed step is shown.
	tailLines = 80
)

// outcome is a step that was run, or that could not be.
type outcome struct {
	step   step
	ran    bool
	took   time.Duration
	counts counts
	err    error // why it failed as a whole; nil when only tests failed
	log    string
	shown  []string // lines the step asked to show
}

func (o outcome) ok() bool { return o.err == nil && len(o.counts.failed) == 0 }

// runStep runs one step after those that are done, showing its progress.
func runStep(ctx context.Context, s step, done []outcome, logs string, out io.Writer) outcome {
	o := outcome{step: s, log: filepath.Join(logs, s.name+".log")}
	if missing := unmet(s, done); missing != "" {
		o.err = fmt.Errorf("not run: it needs the step %s, which failed", missing)
	} else if ctx.Err() != nil {
		o.err = fmt.Errorf("not run: interrupted")
	} else {
		begin := time.Now()
		o.ran = true
		show := startProgress(out, s)
		o.counts, o.err = execute(ctx, s, o.log, show)
		o.took = time.Since(begin)
		show.stop()
		o.shown = marked(o.log, s.show)
		if n := o.counts; s.goTest && o.err == nil && n.passed+len(n.failed)+len(n.skipped) == 0 {
			o.err = errors.New("no test was run, which proves nothing")
		}
	}
	if !s.goTest || (o.err != nil && len(o.counts.failed) == 0) {
		o.count()
	}
	printOutcome(out, o)
	return o
}

// marked returns the lines of a file that hold a text, from that text on.
func marked(path, text string) []string {
	if text == "" {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(content)) {
		if i := strings.Index(line, text); i >= 0 {
			found = append(found, strings.TrimSpace(line[i:]))
		}
	}
	return found
}

// count makes the step itself the thing that passed or failed.
func (o *outcome) count() {
	if o.err == nil {
		o.counts.passed++
		return
	}
	o.counts.failed = append(o.counts.failed, "step "+o.step.name)
}

// unmet names a step that s needs and that was tried without success. Steps left out
// by choice are taken to be in order.
func unmet(s step, done []outcome) string {
	for _, name := range s.needs {
		for _, o := range done {
			if o.step.name == name && !o.ok() {
				return name
			}
		}
	}
	return ""
}

// execute runs the command of a step in a process group of its own and reads what it
// says. Whatever happens, nothing of the group is left when it returns.
func execute(ctx context.Context, s step, logPath string, show *progress) (counts, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return counts{}, fmt.Errorf("making the log: %w", err)
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	command := s.command
	if s.packages != nil {
		found, err := s.packages(ctx)
		if err != nil {
			fmt.Fprintln(log, err)
			return counts{}, cmp.Or(stopped(ctx, s), err)
		}
		command = append(command[:len(command):len(command)], found...)
	}
	n, err := runOnce(ctx, s, command, log, show)
	if err != nil && len(n.failed) > 0 && stopped(ctx, s) == nil {
		n, err = retry(ctx, s, n, err, log, show), stopped(ctx, s) // the exit code says no more than the tests do
	}
	return n, err
}

// runOnce runs a command of a step and reads what it says.
func runOnce(ctx context.Context, s step, command []string, log *os.File, show *progress) (counts, error) {
	reader := &lineReader{log: log, show: show}
	if s.goTest {
		reader.tally = &tally{}
	}
	err := runGroup(ctx, command, s, reader)
	reader.mu.Lock() // a process that left the group may still write
	defer reader.mu.Unlock()
	reader.flush()
	err = cmp.Or(stopped(ctx, s), err)
	if reader.tally == nil {
		return counts{}, err
	}
	return reader.tally.result(), err
}

// stopped says why a step did not end by itself; nil if it did.
func stopped(ctx context.Context, s step) error {
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return fmt.Errorf("stopped at its limit of %s", short(s.limit))
	case ctx.Err() != nil:
		return errors.New("interrupted")
	}
	return nil
}

// runGroup runs a command; when ctx ends its group is asked to end, then killed.
func runGroup(ctx context.Context, command []string, s step, output io.Writer) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = cmp.Or(s.grace, graceTime)
	if err := cmd.Start(); err != nil {
		return err
	}
	err := cmd.Wait()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what the command left of its group
	return err
}

// lineReader takes output, writes what people read to the log, and counts.
type lineReader struct {
	log   io.Writer
	show  *progress
	tally *tally // nil: plain text

	mu   sync.Mutex
	rest []byte
}

func (r *lineReader) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rest = append(r.rest, p...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		r.rest = rest
		r.line(string(line))
	}
}

// flush reads what follows the last line. The caller holds the lock.
func (r *lineReader) flush() {
	if len(r.rest) > 0 {
		r.line(string(r.rest))
		r.rest = nil
	}
}

func (r *lineReader) line(text string) {
	if r.tally == nil {
		fmt.Fprintln(r.log, text)
		r.show.set(strings.TrimSpace(text))
		return
	}
	io.WriteString(r.log, r.tally.add(text))
	note := fmt.Sprintf("%d passed", r.tally.passed)
	if r.tally.failed > 0 {
		note += fmt.Sprintf(", %d failed", r.tally.failed)
	}
	r.show.set(note + ", " + r.tally.running)
}
