package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Longest times for the steps of apt.
const (
	resolveTime  = 2 * time.Minute
	downloadTime = 30 * time.Minute
	updateTime   = 10 * time.Minute
)

// basePackages are unpacked into every image: the folders, names and users that
// all other packages take for granted. What they depend on is not needed.
var basePackages = []string{"base-files", passwdPackage}

// assumedPackages serve installation only. No maintainer script is run, so apt
// is told that they are there, and neither they nor what they depend on
// (mostly Perl) come into the image, unless they are asked for by name.
var assumedPackages = []string{
	"adduser", "debconf", "dpkg", "init-system-helpers", "locales", "lsb-base",
	"sysvinit-utils", "ucf", "usr-is-merged", "usrmerge",
}

// apt calls apt-get with a private state: what is installed on this machine
// plays no part, and nothing of the machine is changed.
type apt struct {
	cache    string // downloaded packages, shared by all builds of the user
	state    string // what apt believes to be installed; thrown away
	progress Progress
}

func newApt(cache, state string, progress Progress) (apt, error) {
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return apt{}, fmt.Errorf("cache: there is no place for packages (%w); set it", err)
		}
		cache = filepath.Join(base, "pelago-sandbox", "debian")
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return apt{}, fmt.Errorf("cache: %w", err)
	}
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			return apt{}, fmt.Errorf("packages: this machine has no %s; build images from packages on Debian or Ubuntu", program)
		}
	}
	for _, dir := range []string{filepath.Join(cache, "partial"), filepath.Join(state, "empty", "partial")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return apt{}, fmt.Errorf("making a folder for packages: %w", err)
		}
	}
	return apt{cache: cache, state: state, progress: progress}, nil
}

// fetch returns the paths of the .deb files of the packages, of all they depend
// on and of the base, sorted by name. Lists that are missing, or so old that
// the mirror no longer has what they name, are renewed once.
func (a apt) fetch(ctx context.Context, packages []string) ([]string, error) {
	unlock, err := a.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := os.WriteFile(filepath.Join(a.state, "status"), []byte(assumed(packages)), 0o600); err != nil {
		return nil, fmt.Errorf("writing apt's state: %w", err)
	}
	debs, err := a.download(ctx, packages)
	if err != nil && stale(err) {
		if update := a.update(ctx); update != nil {
			return nil, errors.Join(err, update)
		}
		debs, err = a.download(ctx, packages)
	}
	return debs, err
}

// download resolves the packages and downloads what the cache lacks.
func (a apt) download(ctx context.Context, packages []string) ([]string, error) {
	requests := [][]string{
		append([]string{"download", "--"}, basePackages...),
		append([]string{"--download-only", "install", "--"}, packages...),
	}
	var debs []deb
	for _, request := range requests {
		list, err := a.run(ctx, resolveTime, filepath.Join(a.state, "empty"), append([]string{"--print-uris"}, request...)...)
		if err != nil {
			return nil, explain(err, packages)
		}
		debs = append(debs, parseDebs(list)...)
	}
	missing := a.missing(debs)
	if len(missing) > 0 {
		a.progress(fmt.Sprintf("downloading %d of %d packages for %s", len(missing), len(debs), strings.Join(packages, ", ")))
		for _, request := range requests {
			if _, err := a.run(ctx, downloadTime, a.cache, request...); err != nil {
				return nil, explain(err, packages)
			}
		}
	}
	if missing = a.missing(debs); len(missing) > 0 {
		return nil, fmt.Errorf("packages: apt-get did not bring %s; delete %s and build again", missing[0].file, a.cache)
	}
	var files []string
	for _, d := range debs {
		files = append(files, filepath.Join(a.cache, d.file))
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// deb is a package's file, as apt-get announces it.
type deb struct {
	file string
	size int64 // bytes
}

// missing are those that are not in the cache, or not whole.
func (a apt) missing(debs []deb) []deb {
	return slices.DeleteFunc(slices.Clone(debs), func(d deb) bool {
		stat, err := os.Stat(filepath.Join(a.cache, d.file))
		return err == nil && stat.Size() == d.size
	})
}

func (a apt) update(ctx context.Context) error {
	a.progress("updating the package lists of this machine")
	ctx, cancel := context.WithTimeout(ctx, updateTime)
	defer cancel()
	if _, err := output(aptGet(ctx, "update", "-qq")); err != nil {
		return fmt.Errorf("packages: the package lists of this machine are missing or old; run apt-get update as root: %w", err)
	}
	return nil
}

// run calls apt-get in a folder, which is also where it puts packages and looks
// for those that are there already.
func (a apt) run(ctx context.Context, limit time.Duration, archives string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	options := []string{"-qq", "-y"}
	for _, o := range []string{
		"Dir::State::status=" + filepath.Join(a.state, "status"),
		"Dir::State::extended_states=" + filepath.Join(a.state, "extended"),
		"Dir::Cache::archives=" + archives,
		"Dir::Cache::pkgcache=", "Dir::Cache::srcpkgcache=",
		"APT::Architectures=" + debianArchitecture(runtime.GOARCH),
		"APT::Install-Recommends=false", "APT::Install-Suggests=false",
		"APT::Sandbox::User=root", "APT::Cmd::Pattern-Only=true",
		"Acquire::Retries=3",
	} {
		options = append(options, "-o", o)
	}
	cmd := aptGet(ctx, append(options, args...)...)
	cmd.Dir = archives
	return output(cmd)
}

func aptGet(ctx context.Context, args ...string) *exec.Cmd {
	cmd := command(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	return cmd
}

// lock keeps other builds from the cache: apt-get gives up at once when it is
// not alone.
func (a apt) lock(ctx context.Context) (func(), error) {
	f, err := os.OpenFile(filepath.Join(a.cache, "build.lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the package cache: %w", err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("waiting for another build to leave the package cache %s: %w", a.cache, ctx.Err())
		case <-tick.C:
		}
	}
	return func() { _ = f.Close() }, nil
}

// assumed is a dpkg status in which only the assumed packages are installed, in
// a version that is new enough for everyone.
func assumed(asked []string) string {
	var s strings.Builder
	for _, p := range assumedPackages {
		if slices.ContainsFunc(asked, func(a string) bool { return nameOf(a) == p }) {
			continue
		}
		fmt.Fprintf(&s, "Package: %s\nStatus: install ok installed\nMaintainer: none\nArchitecture: all\nMulti-Arch: foreign\nVersion: 9999\n", p)
		if p == "debconf" {
			s.WriteString("Provides: debconf-2.0 (= 9999)\n")
		}
		s.WriteString("Description: assumed\n\n")
	}
	return s.String()
}

// printed is a line of `apt-get --print-uris`: URI, file name, size, sum.
var printed = regexp.MustCompile(`(?m)^'[^']*' ([^ /]+\.deb) ([0-9]+)`)

func parseDebs(list string) []deb {
	var debs []deb
	for _, match := range printed.FindAllStringSubmatch(list, -1) {
		size, err := strconv.ParseInt(match[2], 10, 64)
		if err != nil {
			size = -1 // beyond any file: it counts as missing
		}
		debs = append(debs, deb{file: match[1], size: size})
	}
	return debs
}

// stale reports whether an error of apt-get comes from lists that are missing
// (then even base-files is unknown) or name what the mirror no longer has.
func stale(err error) bool {
	said := err.Error()
	return strings.Contains(said, "Unable to locate package "+basePackages[0]) || strings.Contains(said, "Failed to fetch")
}

// unknown is what apt-get says of a package, or a version, that no list has.
var unknown = regexp.MustCompile(`(?:Unable to locate package |Package '|Version '[^']*' for ')([^' \n]+)`)

// explain turns apt-get's complaint into one that names the package.
func explain(err error, packages []string) error {
	if match := unknown.FindStringSubmatch(err.Error()); match != nil {
		return fmt.Errorf("packages: %q, or that version of it, is not in the package lists of this machine; correct the name, or run apt-get update: %w", match[1], err)
	}
	return fmt.Errorf("packages: apt-get cannot bring %s; run apt-get update, and see what it says: %w", strings.Join(packages, ", "), err)
}

// debianArchitecture is Debian's name for a GOARCH.
func debianArchitecture(goarch string) string {
	if name, other := map[string]string{"386": "i386", "arm": "armhf", "ppc64le": "ppc64el", "mips64le": "mips64el"}[goarch]; other {
		return name
	}
	return goarch
}
