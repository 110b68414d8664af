package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/internet"
)

// openedTwice is a sandbox as one command has opened it, and another one that has changed it since:
// a cluster more, and a link that is cut.
func openedTwice(t *testing.T, before, more config.Sandbox) *Sandbox {
	t.Helper()
	name := randomName(t)
	ownBase(t)
	stale, err := Prepare(name, before)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Prepare(name, more)
	if err != nil {
		t.Fatal(err)
	}
	other.Links = []internet.Link{cutLink}
	if err := other.save(); err != nil {
		t.Fatal(err)
	}
	return stale
}

var cutLink = internet.Link{A: "milan", B: "rome", Cut: true}

// TestLinkKeepsWhatOthersHaveDone: a link is changed in the sandbox as it is, not as it was when
// the command began.
func TestLinkKeepsWhatOthersHaveDone(t *testing.T) {
	s := openedTwice(t, config.Sandbox{Clusters: wanted(t, 1, "rome", "milan")}, config.Sandbox{Clusters: wanted(t, 1, "athens")})
	err := s.SetLink(context.Background(), "rome", "athens", func(l *internet.Link) { l.Cut = true })
	if err == nil || !strings.Contains(err.Error(), "the internet of sandbox "+s.Name+" does not run") {
		t.Errorf("with nothing that runs: %v", err)
	}
	if d := cmp.Diff([]internet.Link{cutLink, {A: "athens", B: "rome", Cut: true}}, s.Links); d != "" {
		t.Errorf("links (-want +got):\n%s", d)
	}
}

func TestUpKeepsWhatOthersHaveDone(t *testing.T) {
	one := func(name string) config.Sandbox {
		return config.Sandbox{Profile: config.ProfileControlPlane, Clusters: wanted(t, 1, name)}
	}
	s := openedTwice(t, one("rome"), one("milan"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s.Cache.Dir = t.TempDir()
	t.Setenv("PATH", "")
	if err := s.Up(ctx); err == nil {
		t.Error("up works without Go")
	}
	if got := strings.Join(names(s.configured()), " "); got != "rome milan" || len(s.Links) != 1 {
		t.Errorf("up goes on with the clusters %s and the links %v", got, s.Links)
	}
	if opened, err := Open(s.Name); err != nil || len(opened.Clusters) != 2 || len(opened.Links) != 1 {
		t.Errorf("after up the sandbox is %+v, %v", opened, err)
	}
}

// TestStartNodeRunsWhatItRan: a node comes back with the Kubernetes that is stored, whatever this
// build of the program would compile; that is done only if it is gone.
func TestStartNodeRunsWhatItRan(t *testing.T) {
	s := openedTwice(t, config.Sandbox{Clusters: wanted(t, 1, "rome")}, config.Sandbox{Clusters: wanted(t, 1, "milan")})
	stale := s.Clusters[0]
	kube := filepath.Join(t.TempDir(), "kube")
	other, err := Open(s.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range other.Clusters {
		c.Kube = kube
	}
	if err := other.save(); err != nil {
		t.Fatal(err)
	}
	s.Cache.Dir = t.TempDir()
	t.Setenv("PATH", "")
	if err := s.StartNode(context.Background(), stale, "rome-1"); err == nil || !strings.Contains(err.Error(), "needs Go") {
		t.Errorf("Kubernetes is gone and cannot be compiled: %v", err)
	}
	if err := os.WriteFile(kube, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.StartNode(context.Background(), stale, "rome-1"); err == nil || !strings.Contains(err.Error(), "the internet of sandbox "+s.Name+" does not run") {
		t.Errorf("Kubernetes is there: %v", err)
	}
	rome := s.Clusters[0]
	if d := cmp.Diff([]string{filepath.Dir(kube)}, rome.Visible); d != "" || rome.Kube != kube || len(s.Clusters) != 2 {
		t.Errorf("the sandbox it starts in has %v, its Kubernetes is %s, nodes see (-want +got):\n%s", names(s.configured()), rome.Kube, d)
	}
}

// TestPrepareWaitsForOthers: who has the lock of a sandbox is about to store it.
func TestPrepareWaitsForOthers(t *testing.T) {
	name := randomName(t)
	ownBase(t)
	s, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")})
	if err != nil {
		t.Fatal(err)
	}
	release, err := s.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "milan")}); err == nil || !strings.Contains(err.Error(), "another command is changing "+name) {
		t.Errorf("while another command changes the sandbox: %v", err)
	}
	release()
	if opened, err := Open(name); err != nil || len(opened.Clusters) != 1 {
		t.Errorf("it was changed all the same: %+v, %v", opened, err)
	}
}

// TestPrepareAtOnce: two commands that make one sandbox make one.
func TestPrepareAtOnce(t *testing.T) {
	name := randomName(t)
	ownBase(t)
	var group sync.WaitGroup
	for _, cluster := range []string{"rome", "milan", "athens", "turin"} {
		clusters := wanted(t, 1, cluster)
		group.Go(func() {
			if _, err := Prepare(name, config.Sandbox{Clusters: clusters}); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if opened, err := Open(name); err != nil || len(opened.Clusters) != 4 {
		t.Errorf("the sandbox is %+v, %v", opened, err)
	}
}
