package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/pelago-dev/pelago/sandbox/address"
	"github.com/pelago-dev/pelago/sandbox/build"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/debian"
	"github.com/pelago-dev/pelago/sandbox/internet"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// Base is the folder that holds every sandbox of root, or of the user who runs
// this program.
var Base = baseOf(os.Geteuid(), os.Getenv("HOME"))

func baseOf(user int, home string) string {
	if user == 0 {
		return "/var/lib/pelago-sandbox"
	}
	return filepath.Join("/", home, ".local/state/pelago-sandbox")
}

// ErrNone says that there is no sandbox of that name.
var ErrNone = errors.New("no such sandbox")

// Sandbox is a set of clusters and the internet between them.
type Sandbox struct {
	Name  string
	Index int
	// Profile is config.ProfileControlPlane or nothing.
	Profile  string
	Clusters []*Cluster
	Links    []internet.Link
	Cache    build.Cache
	// Report is told about progress: the cluster (empty for the whole sandbox)
	// and what is going on. It may be nil and must be safe for concurrent use.
	Report func(cluster, doing string)
}

// state is what is stored of a sandbox.
type state struct {
	Index    int               `json:"index"`
	Profile  string            `json:"profile,omitempty"`
	Ports    map[string]int    `json:"ports,omitempty"` // cluster → first port, where it is on loopback
	Clusters []config.Cluster  `json:"clusters"`
	Kube     map[string]string `json:"kube,omitempty"` // version → program
	Links    []internet.Link   `json:"links,omitempty"`
}

var namePattern = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$`)

func checkName(name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("--name %q: use at most 20 lower-case letters, digits and hyphens, a letter first", name)
	}
	return nil
}

// dirOf is where the folder of a sandbox lies, as nodes see it: links lead elsewhere there.
func dirOf(name string) string { return filepath.Join(resolved(Base), name) }

// resolved is a path without symbolic links, if it leads to something.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// Dir is the sandbox's folder.
func (s *Sandbox) Dir() string { return dirOf(s.Name) }

// markerName is the sandbox's name on its processes. Users may choose alike, and
// root must not take down what is theirs.
func markerName(name string, user int) string {
	if user == 0 {
		return name
	}
	return fmt.Sprintf("%s@%d", name, user)
}

func (s *Sandbox) stateFile() string { return filepath.Join(s.Dir(), "sandbox.json") }

func (s *Sandbox) say(cluster, format string, args ...any) {
	if s.Report != nil {
		s.Report(cluster, fmt.Sprintf(format, args...))
	}
}

// Open reads the sandbox called name; the error is ErrNone if it was never
// brought up or has been taken down.
func Open(name string) (*Sandbox, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	s := &Sandbox{Name: name}
	text, err := os.ReadFile(s.stateFile())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) { // the home of somebody else
		return nil, fmt.Errorf("sandbox %s: %w; run: pelago-sandbox up --name %s", name, ErrNone, name)
	}
	if err != nil {
		return nil, fmt.Errorf("reading sandbox %s: %w", name, err)
	}
	var stored state
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, fmt.Errorf("reading sandbox %s: %w; run: pelago-sandbox down --name %s", name, err, name)
	}
	s.adopt(stored)
	return s, nil
}

// refresh reads the sandbox again. Whoever has its lock does so before he changes
// it: others may have changed it since it was opened.
func (s *Sandbox) refresh() error {
	now, err := Open(s.Name)
	if err == nil {
		s.Index, s.Profile, s.Links, s.Clusters = now.Index, now.Profile, now.Links, now.Clusters
	}
	return err
}

func (s *Sandbox) adopt(stored state) {
	s.Index, s.Links, s.Profile = stored.Index, stored.Links, stored.Profile
	s.Clusters = nil
	for k, c := range stored.Clusters {
		s.Clusters = append(s.Clusters, &Cluster{
			Cluster: c, Sandbox: markerName(s.Name, os.Geteuid()), Dir: s.Dir(), Index: k, Port: stored.Ports[c.Name],
			Program: filepath.Join(s.Dir(), "bin", "pelago-sandbox"),
			Kube:    stored.Kube[c.Version],
			Net:     address.Cluster(s.Index, k), Transit: address.Transit(s.Index),
		})
	}
}

func (s *Sandbox) save() error {
	stored := state{Index: s.Index, Links: s.Links, Profile: s.Profile, Ports: s.ports(), Kube: map[string]string{}}
	for _, c := range s.Clusters {
		stored.Clusters = append(stored.Clusters, c.Cluster)
		stored.Kube[c.Version] = c.Kube
	}
	text, err := json.MarshalIndent(stored, "", "  ")
	if err != nil {
		return fmt.Errorf("writing sandbox %s: %w", s.Name, err)
	}
	if err := writeLasting(s.stateFile(), text, 0o600); err != nil {
		return fmt.Errorf("writing sandbox %s: %w", s.Name, err)
	}
	return nil
}

// Prepare finds the sandbox called name or reserves a place for it. A sandbox
// that is there keeps its clusters: wanted may repeat them and add others, but
// not change any.
func Prepare(name string, wanted config.Sandbox) (*Sandbox, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	release, err := lockPlace(name)
	if err != nil {
		return nil, err
	}
	defer release()
	s, err := Open(name)
	if errors.Is(err, ErrNone) {
		index, err := freeIndex()
		if err != nil {
			return nil, err
		}
		s = &Sandbox{Name: name, Index: index, Profile: wanted.Profile}
	} else if err != nil {
		return nil, err
	}
	if len(wanted.Clusters) > 0 && wanted.Profile != s.Profile {
		return nil, fmt.Errorf("sandbox %s is there with the profile %q, not %q; run down first, or use another --name", name, s.Profile, wanted.Profile)
	}
	merged, err := merge(s.configured(), wanted.Clusters)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	}
	kube := map[string]string{}
	for _, c := range s.Clusters {
		kube[c.Version] = c.Kube
	}
	ports, err := s.choosePorts(merged)
	if err != nil {
		return nil, fmt.Errorf("sandbox %s: %w", name, err)
	}
	s.adopt(state{Index: s.Index, Profile: s.Profile, Clusters: merged, Links: s.Links, Kube: kube, Ports: ports})
	if err := os.MkdirAll(s.Dir(), 0o755); err != nil {
		return nil, fmt.Errorf("making folder of sandbox %s: %w", name, err)
	}
	return s, s.save()
}

func (s *Sandbox) configured() []config.Cluster {
	var out []config.Cluster
	for _, c := range s.Clusters {
		out = append(out, c.Cluster)
	}
	return out
}

// merge adds the clusters of wanted that are not there yet.
func merge(there, wanted []config.Cluster) ([]config.Cluster, error) {
	out := slices.Clone(there)
	for _, w := range wanted {
		at := slices.IndexFunc(there, func(c config.Cluster) bool { return c.Name == w.Name })
		if at < 0 {
			out = append(out, w)
			continue
		}
		old, _ := json.Marshal(there[at])
		now, _ := json.Marshal(w)
		if string(old) != string(now) {
			return nil, fmt.Errorf("cluster %s is there with other settings (%s); run down first, or use another --name", w.Name, old)
		}
	}
	if len(out) > address.Clusters {
		return nil, fmt.Errorf("%d clusters are too many; a sandbox holds %d", len(out), address.Clusters)
	}
	return out, nil
}

// lockBase takes the lock of all sandboxes, for the moment in which places are
// given out.
func lockBase() (func(), error) {
	for {
		if err := os.MkdirAll(Base, 0o755); err != nil {
			return nil, fmt.Errorf("making %s, where sandboxes of this user lie by $HOME: %w", Base, err)
		}
		release, err := lockFolder(Base, 10*time.Second)
		if !errors.Is(err, fs.ErrNotExist) { // the last sandbox may have just gone
			return release, err
		}
	}
}

// lockPlace takes the lock of a sandbox, if it is there, and that of all sandboxes,
// in the order in which Down does.
func lockPlace(name string) (func(), error) {
	for {
		release, err := lockFolder(dirOf(name), patience)
		there := err == nil
		if !there && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		releaseBase, err := lockBase()
		both := func() {
			if releaseBase != nil {
				releaseBase()
			}
			if there {
				release()
			}
		}
		if err != nil {
			both()
			return nil, err
		}
		if _, err := os.Stat(dirOf(name)); there || errors.Is(err, fs.ErrNotExist) {
			return both, nil
		}
		both() // somebody has just made it
	}
}

// patience is how long a command waits for another one that changes its sandbox.
const patience = 2 * time.Second

// Lock keeps other commands from changing the sandbox until the returned
// function is called.
func (s *Sandbox) Lock() (func(), error) { return lockFolder(s.Dir(), patience) }

func lockFolder(dir string, patience time.Duration) (func(), error) {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		folder, err := os.Open(dir)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		if err = syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil && isStill(folder, dir) {
			return func() { folder.Close() }, nil
		}
		folder.Close()
		if time.Now().After(end) {
			return nil, fmt.Errorf("another command is changing %s; try again when it is done", filepath.Base(dir))
		}
	}
}

// isStill tells whether an open folder is the one that lies at path now: the
// last holder of its lock may have removed it.
func isStill(folder *os.File, path string) bool {
	mine, err := folder.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(mine, there)
}

// freeIndex returns the lowest place that no sandbox has.
func freeIndex() (int, error) {
	names, err := Names()
	if err != nil {
		return 0, err
	}
	taken := map[int]bool{}
	for _, name := range names {
		other, err := Open(name)
		if err != nil && !errors.Is(err, ErrNone) {
			return 0, err
		}
		if err == nil {
			taken[other.Index] = true
		}
	}
	for i := range address.Sandboxes {
		if !taken[i] {
			return i, nil
		}
	}
	return 0, fmt.Errorf("there are %d sandboxes already; take one down", address.Sandboxes)
}

// Names lists the sandboxes of the host. Other folders lie beside them where Base
// is a file system of its own.
func Names() ([]string, error) {
	entries, err := os.ReadDir(Base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && checkName(entry.Name()) == nil {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Cluster finds a cluster by name.
func (s *Sandbox) Cluster(name string) (*Cluster, error) {
	var names []string
	for _, c := range s.Clusters {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return nil, fmt.Errorf("sandbox %s has no cluster %q; it has %v", s.Name, name, names)
}

// Down removes everything the sandbox called name has on this host, however
// little of it is left, and gives its place back. With the last sandbox it
// undoes what was changed of the host itself.
func Down(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		return errors.Join(down(name), debian.Tidy())
	}
	return down(name)
}

func down(name string) error {
	if _, err := os.Stat(dirOf(name)); err == nil {
		release, err := lockFolder(dirOf(name), patience)
		if err != nil {
			return err
		}
		defer release()
	}
	known, openErr := Open(name)
	marker := markerName(name, os.Geteuid())
	if err := machine.KillSandbox(marker); err != nil {
		return fmt.Errorf("ending the processes of sandbox %s: %w", name, err)
	}
	if openErr == nil && known.Profile != config.ProfileControlPlane {
		if err := unplugHost(known.Index); err != nil {
			return err
		}
	}
	if err := machine.RemoveGroups(marker); err != nil {
		return fmt.Errorf("removing the control groups of sandbox %s: %w", name, err)
	}
	if _, err := os.Stat(Base); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	release, err := lockBase()
	if err != nil {
		return err
	}
	defer release()
	if err := os.RemoveAll(dirOf(name)); err != nil {
		return fmt.Errorf("removing the files of sandbox %s: %w", name, err)
	}
	others, err := Names()
	if err != nil || len(others) > 0 {
		return err
	}
	if err := restoreLimits(); err != nil {
		return err
	}
	if info, err := os.Lstat(Base); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil // who made the link wants it again
	}
	// A file system of its own stays, and so does what is not ours.
	if err := os.Remove(Base); err != nil && !errors.Is(err, syscall.EBUSY) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("removing the folder of sandboxes: %w", err)
	}
	return nil
}

// within bounds a wait and says for what it waited.
func within(ctx context.Context, limit time.Duration, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting %s for %s: %w", limit, what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
