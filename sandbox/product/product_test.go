package product

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/image"
)

// folder makes a folder with an image and a program that writes down its arguments, and
// fails for the cluster turin.
func folder(t *testing.T) (dir, called string) {
	t.Helper()
	dir, called = t.TempDir(), filepath.Join(t.TempDir(), "called")
	script := "#!/bin/sh\necho \"$*\" >> " + called + "\ncase \"$*\" in *turin*) echo 'Error: turin is full' >&2; exit 1;; esac\n"
	root := t.TempDir()
	for file, text := range map[string]string{filepath.Join(dir, programName): script, filepath.Join(root, "program"): "x"} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spec := image.PackSpec{Ref: "pelago.local/pelago:v1", Roots: map[string]string{"amd64": root}}
	if err := image.Pack(t.Context(), spec, filepath.Join(dir, archiveName), nil); err != nil {
		t.Fatal(err)
	}
	return dir, called
}

func TestIn(t *testing.T) {
	dir, _ := folder(t)
	p, err := In(dir)
	if err != nil {
		t.Fatal(err)
	}
	if p.Ref != "pelago.local/pelago:v1" || !strings.HasPrefix(p.Image, "pelago.local/pelago:v1-") || len(p.Image) != len(p.Ref)+13 {
		t.Errorf("found %+v", p)
	}
	for _, c := range []struct{ reason, file, want string }{
		{"a broken image is made again", archiveName, "run: make image"},
		{"what is not built is named with the remedy", programName, "run: make build image"},
	} {
		file := filepath.Join(dir, c.file)
		if c.file == programName {
			err = os.Remove(file)
		} else {
			err = os.WriteFile(file, []byte("x"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := In(dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
		}
	}
}

func TestInstall(t *testing.T) {
	dir, called := folder(t)
	p, err := In(dir)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var loaded []string
	target := func(name string, labels map[string]string, fault error) Target {
		return Target{Name: name, Kubeconfig: "/k/" + name, URL: "https://" + name + ":6443", Labels: labels, Load: func(_ context.Context, archive, ref, as string) error {
			mu.Lock()
			defer mu.Unlock()
			loaded = append(loaded, filepath.Base(archive)+" "+ref+" "+as)
			return fault
		}}
	}
	report := func(string, string) {}
	if err := p.Install(t.Context(), []Target{target("rome", map[string]string{"region": "eu-south", "provider": "acme"}, nil)}, report); err != nil {
		t.Fatal(err)
	}
	want := "install --kubeconfig /k/rome --cluster-name rome --api-server-url https://rome:6443 --image " + p.Image +
		" --set image.pullPolicy=Never --timeout 5m0s --labels provider=acme --labels region=eu-south\n"
	got, err := os.ReadFile(called)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{archiveName + " " + p.Ref + " " + p.Image}, loaded); diff != "" {
		t.Error(diff)
	}

	err = p.Install(t.Context(), []Target{target("turin", nil, nil), target("milan", nil, nil), target("oslo", nil, errors.New("disk full"))}, report)
	if err == nil || !strings.Contains(err.Error(), "cluster turin: installing Pelago") || !strings.Contains(err.Error(), "Error: turin is full") || !strings.Contains(err.Error(), "cluster oslo: disk full") {
		t.Errorf("two of three failed: %v", err)
	}
	if got, _ := os.ReadFile(called); !strings.Contains(string(got), "--cluster-name milan") || strings.Contains(string(got), "oslo") {
		t.Errorf("called: %s; want the others to go on, and none without its image", got)
	}
}
