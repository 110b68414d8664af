package image

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// requireDebian asks for what building from packages takes.
func requireDebian(t *testing.T) {
	t.Helper()
	requireRoot(t)
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, "needs Debian: "+err.Error())
		}
	}
}

// TestNginx serves a file of the image and one of ours.
func TestNginx(t *testing.T) {
	requireDebian(t)
	config, page := filepath.Join(t.TempDir(), "site"), filepath.Join(t.TempDir(), "page")
	write(t, config, "server { listen unix:/run/web.sock; root /var/www/html; }\n", 0o644)
	write(t, page, "a page of ours", 0o644)
	root := extract(t, build(t, Spec{
		Ref: "pelago.local/nginx:test", Packages: []string{"nginx"},
		Files:      map[string]string{"/etc/nginx/sites-available/default": config, "/var/www/html/ours": page},
		Entrypoint: []string{"nginx", "-g", "daemon off;"},
	}))
	start(t, root, "/usr/sbin/nginx", "-g", "daemon off;")
	for path, want := range map[string]string{"/ours": "a page of ours", "/index.nginx-debian.html": "Welcome to nginx"} {
		if got := ask(t, filepath.Join(root, "run/web.sock"), "GET "+path+" HTTP/1.0\r\n\r\n", want); !strings.Contains(got, "200 OK") {
			t.Errorf("%s answers %q", path, got)
		}
	}
}

// TestRedis stores a value, as the user that the package's scripts would make.
func TestRedis(t *testing.T) {
	requireDebian(t)
	root := extract(t, build(t, Spec{Ref: "pelago.local/redis:test", Packages: []string{"redis-server"}, User: "redis"}))
	said := run(t, root, "/bin/su", "-s", "/bin/sh", "redis", "-c", "id -un; touch /var/lib/redis/mine; stat -c '%U:%G %a' /etc/redis /var/lib/redis")
	if diff := cmp.Diff("redis\nredis:redis 2770\nredis:redis 750\n", said); diff != "" {
		t.Errorf("users and folders (-want +got):\n%s", diff)
	}
	start(t, root, "/usr/bin/redis-server", "--port", "0", "--unixsocket", "/run/redis/r.sock", "--dir", "/var/lib/redis")
	ask(t, filepath.Join(root, "run/redis/r.sock"), "PING\r\n", "+PONG")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/perl")); err == nil {
		t.Error("perl, which only installation scripts need, is in the image")
	}
}

// TestBusybox looks at what every image of packages has.
func TestBusybox(t *testing.T) {
	requireDebian(t)
	root := extract(t, build(t, Spec{Ref: "pelago.local/busybox:test", Packages: []string{"busybox-static"}}))
	said := run(t, root, "/bin/sh", "-c", `id -un; id -u www-data; su -c 'echo su'; ls -ld /tmp | cut -c1-10; readlink /var/run
		echo a b | awk '{print $2}'; wget 2>&1 | head -1 | cut -d' ' -f1; . /etc/os-release; echo ${ID:+known}`)
	want := "root\n33\nsu\ndrwxrwxrwt\n/run\nb\nBusyBox\nknown\n"
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "usr/share/doc/*/*")); len(left) == 0 {
		t.Error("no licence is in the image")
	}
	for _, gone := range []string{"usr/share/man", "usr/share/doc/busybox-static/changelog.Debian.gz"} {
		if _, err := os.Lstat(filepath.Join(root, gone)); err == nil {
			t.Errorf("%s is in the image", gone)
		}
	}
}

// TestCache builds from nothing (with package lists that are missing), then
// with no way out, then with a damaged package: always the same image.
func TestCache(t *testing.T) {
	requireDebian(t)
	lists, config := t.TempDir(), filepath.Join(t.TempDir(), "apt.conf")
	write(t, config, fmt.Sprintf("Dir::State::lists %q;\n", lists), 0o600)
	t.Setenv("APT_CONFIG", config)
	spec := Spec{Ref: "pelago.local/busybox:test", Packages: []string{"busybox-static"}, Cache: t.TempDir()}
	digest := func() string {
		t.Helper()
		info, err := Describe(build(t, spec))
		if err != nil {
			t.Fatal(err)
		}
		return info.Digest
	}
	first := digest()

	t.Run("offline", func(t *testing.T) {
		t.Setenv("http_proxy", "http://127.0.0.1:9")
		if second := digest(); second != first {
			t.Errorf("from the cache it is %s, at first %s", second, first)
		}
	})
	debs, err := filepath.Glob(filepath.Join(spec.Cache, "*.deb"))
	if err != nil || len(debs) != 3 {
		t.Fatalf("the cache holds %v, %v", debs, err)
	}
	for _, deb := range debs {
		if err := os.Truncate(deb, 100); err != nil {
			t.Fatal(err)
		}
	}
	if third := digest(); third != first {
		t.Errorf("after damage it is %s, at first %s", third, first)
	}
}

// TestCacheIsShared checks that a build waits for its turn, as long as it may.
func TestCacheIsShared(t *testing.T) {
	a := apt{cache: t.TempDir()}
	unlock, err := a.lock(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.lock(ended); err == nil {
		t.Error("two builds have the cache at once")
	}
	got := make(chan error)
	go func() {
		second, err := a.lock(deadline(t))
		if err == nil {
			second()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// TestUnknownPackage checks that apt's refusal names the package.
func TestUnknownPackage(t *testing.T) {
	requireDebian(t)
	for _, c := range []struct{ pkg, want string }{
		{"no-such-package-anywhere", `"no-such-package-anywhere"`},
		{"busybox-static=0.1", `"busybox-static"`},
		{"libc.6", `"libc.6"`}, // apt-get would take it for a pattern
	} {
		out := t.TempDir()
		err := Build(deadline(t), Spec{Ref: "pelago.local/none:1", Packages: []string{c.pkg}, Cache: t.TempDir()}, filepath.Join(out, "image.tar"), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "apt-get update") {
			t.Errorf("%s: error %v", c.pkg, err)
		}
		if left, _ := os.ReadDir(out); len(left) != 0 {
			t.Errorf("%s: %s is left", c.pkg, left[0].Name())
		}
	}
}

// start runs a server until the test ends.
func start(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := inside(t, root, args...)
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%v says:\n%s", args, said.String())
		}
	})
}

// ask sends a question to a socket, as soon as there is one, and reads until
// the answer holds want.
func ask(t *testing.T, socket, question, want string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			defer func() { _ = conn.Close() }()
			return exchange(t, conn, question, want)
		}
		select {
		case <-ctx.Done():
			t.Fatalf("nobody listens: %v", err)
		case <-tick.C:
		}
	}
}

func exchange(t *testing.T, conn net.Conn, question, want string) string {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, question); err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		answer.WriteString(lines.Text() + "\n")
		if strings.Contains(answer.String(), want) {
			return answer.String()
		}
	}
	t.Fatalf("the answer to %q has no %q:\n%s", question, want, answer.String())
	return ""
}
