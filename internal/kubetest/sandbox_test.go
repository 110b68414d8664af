package kubetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fakeSandbox writes down how it was called.
const fakeSandbox = `#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *fail*) echo the cause >&2; exit 1;; esac
`

func TestSandboxCalls(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", calls)
	cases := []struct {
		reason  string
		options Options
		want    string
	}{
		{"clusters and nodes are named", Options{Clusters: []string{"rome", "milan"}, Nodes: 2}, "up --clusters rome,milan --nodes 2"},
		{"the sandbox has defaults of its own", Options{}, "up"},
		{"a file says everything", Options{File: "s.yaml", Nodes: 3}, "up -f s.yaml"},
	}
	for _, c := range cases {
		s := &SandboxHandle{Name: "x", program: script(t, fakeSandbox), options: c.options}
		if got := strings.Join(s.UpArgs(), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
	s := &SandboxHandle{Name: "x", program: script(t, fakeSandbox)}
	s.Up(t)
	s.Kubectl(t, "rome", "get", "nodes")
	want := "--name x up\n--name x kubectl rome -- get nodes\n"
	if got, err := os.ReadFile(calls); err != nil || string(got) != want {
		t.Errorf("calls differ (-want +got):\n%s%v", cmp.Diff(want, string(got)), err)
	}
	if _, err := s.Try(t.Context(), "fail"); err == nil || !strings.Contains(err.Error(), "the cause") {
		t.Errorf("error %v, want what the program wrote to standard error", err)
	}
}

// TestDownAfterDeath holds both ends of the guard: silent when released, acting when
// the pipe to it breaks without a word, as it does when the test is killed.
func TestDownAfterDeath(t *testing.T) {
	calls := filepath.Join(t.TempDir(), "calls")
	t.Setenv("CALLS", calls)
	program := script(t, fakeSandbox)
	released, err := downAfterDeath(program, "kept")
	if err != nil {
		t.Fatal(err)
	}
	released.release(true)
	if _, err := os.Stat(calls); err == nil {
		t.Error("a released guard acted")
	}
	orphaned, err := downAfterDeath(program, "orphan")
	if err != nil {
		t.Fatal(err)
	}
	orphaned.pipe.Close()
	orphaned.wait()
	if got, err := os.ReadFile(calls); err != nil || string(got) != "--name orphan down\n" {
		t.Errorf("calls %q, %v; want the orphan taken down", got, err)
	}
	busy, err := downAfterDeath(script(t, "#!/bin/sh\n"+`echo "$@" >> "$CALLS"; [ "$(wc -l < "$CALLS")" -ge 3 ]`), "busy")
	if err != nil {
		t.Fatal(err)
	}
	busy.release(false) // its test could not
	if got, err := os.ReadFile(calls); err != nil || string(got) != "--name orphan down\n--name busy down\n--name busy down\n" {
		t.Errorf("calls %q, %v; want the one taken down that was left, also at the second try", got, err)
	}
}

func TestFindProgram(t *testing.T) {
	empty := t.TempDir()
	os.WriteFile(filepath.Join(empty, "go.mod"), []byte("module "+modulePath+"\n"), 0o600)
	program := script(t, "#!/bin/sh\n")
	cases := []struct{ reason, dir, env, want, err string }{
		{"the environment decides", empty, program, program, ""},
		{"a wrong variable is not passed over", empty, filepath.Join(empty, "none"), "", "unset it"},
		{"the command to run is named", empty, "", "", "run `make -C " + empty + " build`"},
		{"outside of the repository", "/", "", "", "set " + EnvProgram},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Chdir(c.dir)
			t.Setenv(EnvProgram, c.env)
			got, err := findProgram()
			if got != c.want || (err == nil) != (c.err == "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %q, %v; want %q and an error with %q", got, err, c.want, c.err)
			}
		})
	}
}
