package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// line is how an API server writes a request down.
func line(stage, user, verb, resource, subresource string) string {
	return fmt.Sprintf(`{"kind":"Event","stage":%q,"requestURI":"/api/v1/x?y=z","verb":%q,"user":{"username":%q,"groups":["g"]},"objectRef":{"resource":%q,"subresource":%q},"responseStatus":{"code":201}}`,
		stage, verb, user, resource, subresource) + "\n"
}

func TestRead(t *testing.T) {
	cases := []struct {
		reason, log string
		want        []Request
	}{
		{"a request", line("ResponseComplete", "rome", "create", "pods", ""), []Request{{"rome", "create", "pods", 201}}},
		{"a subresource is named", line("ResponseComplete", "rome", "patch", "pods", "status"), []Request{{"rome", "patch", "pods/status", 201}}},
		{"a watch is one request, when it ends", line("ResponseStarted", "rome", "watch", "pods", "") + line("ResponseComplete", "rome", "watch", "pods", ""),
			[]Request{{"rome", "watch", "pods", 201}}},
		{"a request about no object goes by its path", `{"stage":"ResponseComplete","requestURI":"/apis?timeout=32s","verb":"get","user":{"username":"rome"},"responseStatus":{"code":200}}` + "\n",
			[]Request{{"rome", "get", "/apis", 200}}},
		{"one that broke the server is one", line("Panic", "rome", "create", "pods", ""), []Request{{"rome", "create", "pods", 201}}},
		{"a line that is being written is none yet", line("ResponseComplete", "rome", "get", "pods", "") + `{"stage":"Respon`, []Request{{"rome", "get", "pods", 201}}},
	}
	for _, c := range cases {
		var got []Request
		if err := Read(strings.NewReader(c.log), func(r Request) { got = append(got, r) }); err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
	}
	if err := Read(strings.NewReader("oops\n"), func(Request) {}); err == nil || !strings.Contains(err.Error(), "oops") {
		t.Errorf("what is no audit log is read with error %v, want one that shows it", err)
	}
}

// TestSince holds that what is older than a mark does not count, and that no file is
// forgotten when the server begins new ones.
func TestSince(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	write := func(user string) {
		t.Helper()
		log, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			defer log.Close()
			_, err = log.WriteString(line("ResponseComplete", user, "get", "pods", ""))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	full := func(when string) {
		t.Helper()
		if err := os.Rename(path, filepath.Join(dir, "audit-"+when+".log")); err != nil {
			t.Fatal(err)
		}
	}
	write("older")
	full("2026-11-21T10-00-00.000")
	write("before")
	mark, err := Here(path)
	if err != nil {
		t.Fatal(err)
	}
	defer mark.Close()
	since := func() (users []string, err error) {
		err = mark.Since(func(r Request) { users = append(users, r.User) })
		return users, err
	}
	if got, err := since(); err != nil || len(got) > 0 {
		t.Errorf("at once there are %q, %v; want none", got, err)
	}
	write("first")
	full("2026-11-21T10-00-01.000")
	write("second")
	full("2026-11-21T10-00-02.000")
	write("third")
	got, err := since()
	if diff := cmp.Diff([]string{"first", "second", "third"}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	if err := os.Remove(filepath.Join(dir, "audit-2026-11-21T10-00-01.000.log")); err != nil {
		t.Fatal(err)
	}
	if _, err := since(); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a file that was removed meanwhile gives the error %v, want one that says so", err)
	}
	if _, err := Here(filepath.Join(dir, "none.log")); err == nil {
		t.Error("a log that is not there can be marked")
	}
}

func TestCounts(t *testing.T) {
	counts := Counts{}
	for _, r := range []Request{{Verb: "create", Resource: "pods"}, {Verb: "patch", Resource: "pods/status"}, {Verb: "create", Resource: "events"}, {Verb: "patch", Resource: "pods/status"}} {
		counts.Add(r)
	}
	if got, want := counts.String(), "patch pods/status 2, create events 1, create pods 1"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
	if got := counts.Sum(func(verb, resource string) bool { return verb != "create" || resource == "events" }); got != 3 {
		t.Errorf("%d of the kinds wanted, want 3", got)
	}
}
