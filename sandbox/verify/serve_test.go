package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestServeAndFetch runs the scripts of the pods in an image like theirs:
// busybox alone, in namespaces of its own.
func TestServeAndFetch(t *testing.T) {
	busybox, err := exec.LookPath("busybox")
	if os.Getuid() != 0 || err != nil {
		const why = "needs root and busybox (apt-get install busybox-static)"
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", "work", "dev"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mknod(filepath.Join(root, "dev/null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"127.0.0.1:8080", "[::1]:8080"} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		script := fmt.Sprintf("/bin/busybox --install -s /bin; ip link set lo up\n( %s ) &\nuntil %s; do usleep 50000; done", serve, fetchCommand(address))
		cmd := exec.CommandContext(ctx, "/bin/busybox", "sh", "-c", script)
		cmd.Env = []string{"PATH=/bin", "ANSWER=web-0"}
		cmd.Dir = "/"
		// The first process of a PID namespace takes the server with it.
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		got, err := parseAnswer(string(out))
		if want := (answer{"web-0", netip.MustParseAddrPort(address).Addr()}); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", address, got, err, want)
		}
	}
}

func TestFetchFromHost(t *testing.T) {
	replies := "web-1 [::ffff:10.0.0.9]\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/cgi-bin/who" || r.Host != "198.18.0.200:80" {
			t.Errorf("asked for %s of %s", r.URL.Path, r.Host)
		}
		_, _ = w.Write([]byte(replies))
	}))
	defer server.Close()
	e := &env{Target: Target{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "198.18.0.200:80" {
			return nil, errors.New("dialled " + address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}}}
	got, err := e.fetchFromHost(t.Context(), "198.18.0.200:80")
	if err != nil || got.name != "web-1" {
		t.Errorf("%+v, %v: want an answer through the caller's dialler", got, err)
	}
	replies = "404"
	if got, err := e.fetchFromHost(t.Context(), "198.18.0.200:80"); err == nil {
		t.Errorf("a stranger's answer was taken for %+v", got)
	}
}

func TestEveryServer(t *testing.T) {
	for _, c := range []struct {
		reason  string
		answers []string // in turn, the last for ever
		bad     bool
	}{
		{"all answer", []string{"a", "a", "b"}, false},
		{"a failure is tried again", []string{"", "a", "b"}, false},
		{"one never answers", []string{"a"}, true},
		{"a stranger does not count", []string{"a", "c"}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			i := -1
			err := everyServer(ctx, "a service", []string{"a", "b"}, func(context.Context) (answer, error) {
				i = min(i+1, len(c.answers)-1)
				if c.answers[i] == "" {
					return answer{}, errors.New("refused")
				}
				return answer{name: c.answers[i]}, nil
			})
			if (err != nil) != c.bad {
				t.Errorf("%s: %v", c.reason, err)
			}
		})
	}
}
