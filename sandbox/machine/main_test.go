package machine

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary is also the program of the machines it starts: as their
// init, as a supervisor without namespaces, and as the two ends of a TCP
// connection.
func TestMain(m *testing.M) {
	roles := map[string]func([]string) error{
		InitCommand: Init, "test-supervise": superviseAlone, "test-listen": listenAs, "test-dial": dial,
		"test-shared-host": startOnSharedHost, "test-own-base": startOnOwnBase,
		"test-guard": standGuard, "test-guarded": startGuarded,
	}
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// superviseAlone is the second pass of Init on the host: as a subreaper it
// gets the orphans of its units, which the first process of a machine gets
// anyhow.
func superviseAlone(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	return supervise(Spec{Dir: args[0]})
}

// listenAs says its name to whoever connects: ADDRESS NAME.
func listenAs(args []string) error {
	listener, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		_, _ = io.WriteString(conn, args[1])
		conn.Close()
	}
}

// dial prints what a listener says.
func dial(args []string) error {
	var err error
	for range 50 { // until the listener is there
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", args[0], 500*time.Millisecond); err == nil {
			defer conn.Close()
			_, err = io.Copy(os.Stdout, conn)
			return err
		}
		if !errors.Is(err, unix.ECONNREFUSED) && !os.IsTimeout(err) {
			return err
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}

// requireRoot skips a test that makes machines, but never where a skip would
// go unseen.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("needs root to make machines")
	}
	t.Skip("needs root to make machines; run as root")
}

// random is a short name that nothing else has.
func random() string {
	raw := make([]byte, 4)
	_, _ = rand.Read(raw)
	return hex.EncodeToString(raw)
}

// shortDir is a folder whose path leaves room for a socket's name, which may
// have 107 bytes at most.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "machine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing the test's folder: %v", err)
		}
	})
	return dir
}

// patience bounds the wait for what comes at once unless the machine is busy.
const patience = time.Minute

// eventually waits until check returns nil.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s, after %s: %v", what, patience, err)
		case <-tick.C:
		}
	}
}

// world is a sandbox of a test's own.
type world struct {
	sandbox, dir, program string
}

// newWorld makes a sandbox that is gone, checked to be gone, after the test.
func newWorld(t *testing.T) world {
	t.Helper()
	requireRoot(t)
	w := world{sandbox: "test-" + random(), dir: shortDir(t)}
	guarded(t, w.sandbox, w.dir)
	w.program = filepath.Join(w.dir, "bin", "machine.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Mkdir(filepath.Dir(w.program), 0o755), os.WriteFile(w.program, self, 0o755))
	}
	if err != nil {
		t.Fatalf("copying the test program: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(KillSandbox(w.sandbox), RemoveGroups(w.sandbox)); err != nil {
			t.Errorf("removing the sandbox: %v", err)
		}
		if left := Remaining(w.sandbox); len(left) > 0 {
			t.Errorf("processes of the sandbox remain: %v", left)
		}
		if left := mountsWith(t, w.dir); len(left) > 0 {
			t.Errorf("mounts of the sandbox remain on the host: %v", left)
		}
	})
	return w
}

// spec is a machine of the sandbox, adjusted by change.
func (w world) spec(name string, change func(*Spec)) Spec {
	s := Spec{
		Sandbox: w.sandbox, Name: name, Dir: filepath.Join(w.dir, name), Program: w.program,
		Visible: []string{filepath.Dir(w.program)},
	}
	if change != nil {
		change(&s)
	}
	return s
}

func (w world) start(t *testing.T, spec Spec) *Machine {
	t.Helper()
	m, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatalf("starting %s: %v", spec.Name, err)
	}
	return m
}

// run runs a shell script as a unit of a machine and returns what it printed;
// it must succeed.
func run(t *testing.T, m *Machine, script string) string {
	t.Helper()
	return runUnit(t, m, "/bin/sh", "-ec", script)
}

func runUnit(t *testing.T, m *Machine, args ...string) string {
	t.Helper()
	name := "run-" + random()
	quick := []string{"GORACE=atexit_sleep_ms=0"} // the test program itself may be run
	if err := m.Put(context.Background(), Unit{Name: name, Args: args, Env: quick, Once: true}); err != nil {
		t.Fatalf("running %q on %s: %v", args, m.Name, err)
	}
	var last UnitStatus
	eventually(t, fmt.Sprintf("%q on %s", args, m.Name), func() error {
		if last = unitOf(t, m, name); last.PID != 0 {
			return errors.New("still runs")
		}
		return nil
	})
	text := logOf(t, m, name)
	if last.Exit != 0 {
		t.Fatalf("%q on %s: wait status %d: %s", args, m.Name, last.Exit, text)
	}
	return strings.TrimSpace(text)
}

func logOf(t *testing.T, m *Machine, unit string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(m.logs(), unit+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// unitOf is the status of a unit, which must be there.
func unitOf(t *testing.T, m *Machine, name string) UnitStatus {
	t.Helper()
	all, err := m.Units(context.Background())
	if err != nil {
		t.Fatalf("listing units: %v", err)
	}
	for _, u := range all {
		if u.Name == name {
			return u
		}
	}
	t.Fatalf("there is no unit %s among %v", name, all)
	return UnitStatus{}
}

// mountsWith lists the lines of the test's own mount table that name a text.
func mountsWith(t *testing.T, text string) []string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.SplitSeq(string(table), "\n") {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}
