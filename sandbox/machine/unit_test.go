package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// supervisor starts a supervisor without namespaces, as an ordinary user may.
func supervisor(t *testing.T) *Machine {
	t.Helper()
	spec := Spec{Sandbox: "test-" + random(), Name: "units", Dir: shortDir(t)}
	if err := os.Mkdir(spec.logs(), 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("/proc/self/exe", "test-supervise", spec.Dir)
	command.Env = append(os.Environ(), Marker+"="+spec.Sandbox+"/"+spec.Name)
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = command.Wait(); close(ended) }()
	t.Cleanup(func() {
		if err := KillSandbox(spec.Sandbox); err != nil {
			t.Errorf("ending the supervisor and its units: %v", err)
		}
		<-ended
	})
	m := &Machine{Spec: spec, PID: command.Process.Pid}
	if err := m.awaitInit(context.Background(), ended); err != nil {
		t.Fatal(err)
	}
	return m
}

func shell(name, script string) Unit {
	return Unit{Name: name, Args: []string{"/bin/sh", "-c", script}}
}

func put(t *testing.T, m *Machine, unit Unit) {
	t.Helper()
	if err := m.Put(context.Background(), unit); err != nil {
		t.Fatalf("starting unit %s: %v", unit.Name, err)
	}
}

// awaitLog waits until a unit has printed a text.
func awaitLog(t *testing.T, m *Machine, unit, text string) {
	t.Helper()
	eventually(t, unit+" prints "+text, func() error {
		if log := logOf(t, m, unit); !strings.Contains(log, text) {
			return fmt.Errorf("its log is %q", log)
		}
		return nil
	})
}

func alive(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}

func TestUnitRuns(t *testing.T) {
	m := supervisor(t)
	unit := shell("web", `echo "$GREETING out"; echo err >&2; read line; echo "input: $line"; exec sleep 1000`)
	unit.Env = []string{"GREETING=hello"}
	put(t, m, unit)
	awaitLog(t, m, "web", "hello out\nerr\ninput: \n")
	status := unitOf(t, m, "web")
	if !alive(status.PID) || status.Starts != 1 {
		t.Errorf("the unit is %+v", status)
	}
	if d := cmp.Diff(unit, status.Unit); d != "" {
		t.Errorf("the unit is not what was asked for (-want +got):\n%s", d)
	}
	if session, err := syscall.Getpgid(status.PID); session != status.PID {
		t.Errorf("the unit has process group %d, %v, want one of its own (%d)", session, err, status.PID)
	}
}

func TestUnitStartsAgainEverMoreSlowly(t *testing.T) {
	m := supervisor(t)
	put(t, m, shell("crash", "date +%s%N; exit 3"))
	var times []string
	eventually(t, "three starts", func() error {
		if times = strings.Fields(logOf(t, m, "crash")); len(times) < 3 {
			return fmt.Errorf("%d starts", len(times))
		}
		return nil
	})
	var at [3]int64
	for i := range at {
		at[i], _ = strconv.ParseInt(times[i], 10, 64)
	}
	first, second := time.Duration(at[1]-at[0]), time.Duration(at[2]-at[1])
	if first < restartSoonest || second < 2*restartSoonest {
		t.Errorf("the unit was started again after %s and %s, want at least %s and %s", first, second, restartSoonest, 2*restartSoonest)
	}
	eventually(t, "its exit is known", func() error {
		if s := unitOf(t, m, "crash"); s.Starts < 3 || syscall.WaitStatus(s.Exit).ExitStatus() != 3 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

func TestUnitOnceStaysEnded(t *testing.T) {
	m := supervisor(t)
	unit := shell("setup", "echo ran; exit 7")
	unit.Once = true
	put(t, m, unit)
	put(t, m, shell("clock", "echo ran; exit 0")) // started again twice while setup is not
	eventually(t, "the clock goes on, and setup has ended", func() error {
		if c, s := unitOf(t, m, "clock"), unitOf(t, m, "setup"); c.Starts < 3 || s.PID != 0 {
			return fmt.Errorf("%+v, %+v", c, s)
		}
		return nil
	})
	got := unitOf(t, m, "setup")
	want := UnitStatus{Unit: unit, Starts: 1, Exit: 7 << 8}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("a unit that runs once (-want +got):\n%s", d)
	}
	if err := m.Signal(context.Background(), "setup", syscall.SIGHUP); err == nil {
		t.Error("a unit that has ended took a signal")
	}
}

func TestRemoveUnit(t *testing.T) {
	for _, c := range []struct {
		reason, script, last string
		soonest              time.Duration
	}{
		{"a polite program gets SIGTERM and time to tidy up", `trap 'echo tidy; exit 0' TERM; echo up; while :; do sleep 0.05; done`, "up\ntidy\n", 0},
		{"one that ignores SIGTERM gets SIGKILL after the grace", `trap '' TERM; echo up; while :; do sleep 0.05; done`, "up\n", stopGrace},
		{"one that was stopped goes on to end", `trap 'echo tidy; exit 0' TERM; echo up; kill -STOP $$; while :; do sleep 0.05; done`, "up\ntidy\n", 0},
	} {
		m := supervisor(t)
		put(t, m, shell("unit", c.script))
		awaitLog(t, m, "unit", "up")
		pid := unitOf(t, m, "unit").PID
		start := time.Now()
		if err := m.Remove(context.Background(), "unit"); err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		if took := time.Since(start); took < c.soonest || took > patience {
			t.Errorf("%s: it took %s, want %s to %s", c.reason, took, c.soonest, patience)
		}
		if alive(pid) {
			t.Errorf("%s: it still runs", c.reason)
		}
		if log := logOf(t, m, "unit"); log != c.last {
			t.Errorf("%s: its log is %q, want %q", c.reason, log, c.last)
		}
		if all, err := m.Units(context.Background()); len(all) != 0 || err != nil {
			t.Errorf("%s: units are %v, %v", c.reason, all, err)
		}
	}
}

func TestRemovedUnitStaysRemoved(t *testing.T) {
	m := supervisor(t)
	put(t, m, shell("crash", "echo ran"))
	eventually(t, "it waits to be started again", func() error {
		if s := unitOf(t, m, "crash"); s.PID != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if err := m.Remove(context.Background(), "crash"); err != nil {
		t.Fatal(err)
	}
	before := logOf(t, m, "crash")
	put(t, m, shell("clock", "echo ran")) // two pauses, in which crash would have come back
	awaitLog(t, m, "clock", "ran\nran\nran\n")
	if after := logOf(t, m, "crash"); after != before {
		t.Errorf("it ran again after it was removed: %q, then %q", before, after)
	}
}

func TestPutReplaces(t *testing.T) {
	m := supervisor(t)
	put(t, m, shell("unit", "echo one; exec sleep 1000"))
	awaitLog(t, m, "unit", "one")
	old := unitOf(t, m, "unit").PID
	put(t, m, shell("unit", "echo two; exec sleep 1000"))
	awaitLog(t, m, "unit", "two")
	now := unitOf(t, m, "unit")
	if alive(old) || now.PID == old || now.Starts != 1 {
		t.Errorf("old one alive: %t; new one %+v", alive(old), now)
	}
	if err := m.Ensure(context.Background(), shell("unit", "echo three")); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(now, unitOf(t, m, "unit")); d != "" {
		t.Errorf("Ensure changed a unit that was there (-before +after):\n%s", d)
	}
	if err := m.Ensure(context.Background(), shell("other", "exec sleep 1000")); err != nil {
		t.Fatal(err)
	}
	if s := unitOf(t, m, "other"); s.PID == 0 {
		t.Errorf("Ensure did not start a unit: %+v", s)
	}
}

func TestPutAtOnceLeavesOne(t *testing.T) {
	m := supervisor(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := m.Put(context.Background(), shell("unit", "echo $$; exec sleep 1000")); err != nil {
				t.Errorf("starting the unit: %v", err)
			}
		})
	}
	group.Wait()
	now := unitOf(t, m, "unit").PID
	awaitLog(t, m, "unit", strconv.Itoa(now)+"\n")
	for _, word := range strings.Fields(logOf(t, m, "unit")) {
		if pid, err := strconv.Atoi(word); err != nil || pid != now && alive(pid) {
			t.Errorf("process %s of a replaced unit still runs; the unit is %d", word, now)
		}
	}
}

func TestSignalUnit(t *testing.T) {
	m := supervisor(t)
	put(t, m, shell("unit", `trap 'echo reloaded' USR1; echo up; while :; do sleep 0.05; done`))
	awaitLog(t, m, "unit", "up")
	// More than once: a shell that is just making a process may drop one. Not SIGHUP, which
	// a shell cannot trap if this test was started by nohup.
	eventually(t, "it hears the signal", func() error {
		if err := m.Signal(context.Background(), "unit", syscall.SIGUSR1); err != nil {
			return err
		}
		if log := logOf(t, m, "unit"); !strings.Contains(log, "reloaded") {
			return fmt.Errorf("its log is %q", log)
		}
		return nil
	})
	if err := m.Signal(context.Background(), "unit", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is started again", func() error {
		if s := unitOf(t, m, "unit"); s.Starts != 2 || syscall.WaitStatus(s.Exit).Signal() != syscall.SIGKILL {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// TestLogIsBounded: a log that has grown large is put aside when its unit starts, over the one
// that was put aside before.
func TestLogIsBounded(t *testing.T) {
	m := supervisor(t)
	log := func(unit string) string { return filepath.Join(m.logs(), unit+".log") }
	for unit, size := range map[string]int64{"short": logLimit, "long": logLimit + 1} {
		write(t, log(unit), "first\n")
		if err := os.Truncate(log(unit), size); err != nil {
			t.Fatal(err)
		}
		write(t, log(unit)+".1", "older\n")
		put(t, m, shell(unit, "echo last; exec sleep 1000"))
		awaitLog(t, m, unit, "last\n")
	}
	sizes := map[string]int64{}
	for _, path := range []string{log("short"), log("short") + ".1", log("long"), log("long") + ".1"} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes[filepath.Base(path)] = info.Size()
	}
	want := map[string]int64{"short.log": logLimit + 5, "short.log.1": 6, "long.log": 5, "long.log.1": logLimit + 1}
	if d := cmp.Diff(want, sizes); d != "" {
		t.Errorf("sizes of logs (-want +got):\n%s", d)
	}
}

func TestRefusedUnits(t *testing.T) {
	m := supervisor(t)
	ctx := context.Background()
	for _, c := range []struct {
		reason string
		err    error
		want   string
	}{
		{"no name", m.Put(ctx, Unit{Args: []string{"/bin/true"}}), "needs a plain name"},
		{"a name that leads elsewhere", m.Put(ctx, Unit{Name: "../x", Args: []string{"/bin/true"}}), "needs a plain name"},
		{"no program", m.Put(ctx, Unit{Name: "x"}), "needs a plain name and a program"},
		{"a program that is not there", m.Put(ctx, Unit{Name: "x", Args: []string{"/no/such/program"}}), "starting /no/such/program"},
		{"removing what is not there", m.Remove(ctx, "x"), errNoUnit.Error()},
		{"a signal to what is not there", m.Signal(ctx, "x", syscall.SIGHUP), errNoUnit.Error()},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || !strings.Contains(c.err.Error(), "machine units") {
			t.Errorf("%s: %v, want the machine's name and %q", c.reason, c.err, c.want)
		}
	}
	if all, err := m.Units(ctx); len(all) != 0 || err != nil {
		t.Errorf("a refused unit is listed: %v, %v", all, err)
	}
	if _, err := os.Stat(filepath.Join(m.Dir, "x.log")); err == nil {
		t.Error("a refused unit has a log outside the folder of logs")
	}
}

func TestOrphansAreReaped(t *testing.T) {
	m := supervisor(t)
	unit := shell("parent", `sh -c 'echo $$; exec sleep 0.2' & exit 0`)
	unit.Once = true
	put(t, m, unit)
	awaitLog(t, m, "parent", "\n")
	orphan, err := strconv.Atoi(strings.TrimSpace(logOf(t, m, "parent")))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the orphan leaves the process table", func() error {
		if err := syscall.Kill(orphan, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("process %d is there: %v", orphan, err)
		}
		return nil
	})
}

func TestNobodyAnswers(t *testing.T) {
	m := &Machine{Spec: Spec{Name: "gone", Dir: shortDir(t)}}
	if _, err := m.Units(context.Background()); err == nil || !strings.Contains(err.Error(), "asking machine gone") {
		t.Errorf("a machine that does not run answers: %v", err)
	}
	for _, err := range []error{m.Ensure(context.Background(), shell("x", "")), m.Put(context.Background(), shell("x", ""))} {
		if err == nil {
			t.Error("a machine that does not run took a unit")
		}
	}
}

func TestSocketIsTheOwnersAlone(t *testing.T) {
	m := supervisor(t)
	eventually(t, "its mode", func() error {
		info, err := os.Stat(m.socket())
		if err == nil && info.Mode().Perm() != 0o600 {
			err = fmt.Errorf("it is %v", info.Mode())
		}
		return err
	})
}
