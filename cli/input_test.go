package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// unconnected is an environment with an input, in which no cluster is asked for anything.
func unconnected(t *testing.T, input string) func(*Env) {
	return func(e *Env) {
		e.In = strings.NewReader(input)
		e.Connect = func(Access) (*Cluster, error) {
			t.Error("the cluster is asked for something")
			return nil, os.ErrClosed
		}
	}
}

// TestTooMuchInput holds that what is too long to be read is refused by its limit, and that no part of it is
// taken for the whole: the rest may say something else.
func TestTooMuchInput(t *testing.T) {
	values := "config: {cluster: {name: rome}}\n"
	values += "# " + strings.Repeat("x", mostValues-len(values)-3) + "\n"
	more := values + "network: {enabled: false}\n"
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(more), 0o600); err != nil {
		t.Fatal(err)
	}
	const remedy = "at most 1048576 bytes; give values alone, without what is no setting of Pelago"
	for _, name := range []string{"-", file} {
		got := programWith(t.Context(), unconnected(t, more), "install", "--values", name)
		if got.code != 1 || got.out != "" || !strings.Contains(got.err, "reading --values") || !strings.Contains(got.err, remedy) {
			t.Errorf("values that are too long, of %s: %+v", name, got)
		}
	}
	e := environment(nil, nil)
	e.In = strings.NewReader(values)
	if read, err := readValues(t.Context(), e, "-"); err != nil || lookup(read, "config", "cluster", "name") != "rome" {
		t.Errorf("values that are as long as they may be: %v, %v", read, err)
	}

	line := []string{"peer", "milan", "--cluster-id", id1, "--auth-url", "https://milan.example:30443", "--ca-sha256", hash, "--token", "-", "--dry-run"}
	for reason, text := range map[string]string{
		"without an end": marked + strings.Repeat(" ", mostToken) + "x", "with one": marked + strings.Repeat(" ", mostToken) + "x\n",
	} {
		if got := programWith(t.Context(), unconnected(t, text), line...); got.code != 1 || got.out != "" || !strings.Contains(got.err, "the line with the token has more than 4096 bytes") {
			t.Errorf("a line that is too long, %s: %+v", reason, got)
		}
	}
	for reason, text := range map[string]string{"alone": marked, "and more after it": marked + "\n" + strings.Repeat("x", 2*mostToken)} {
		if got := programWith(t.Context(), unconnected(t, text), line...); got.code != 0 || !strings.Contains(got.out, marked) {
			t.Errorf("a line with a token, %s: %+v", reason, got)
		}
	}
}
