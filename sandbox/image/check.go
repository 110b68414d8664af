package image

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
)

// searchPath is the PATH of every image that does not set its own.
const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// packageName is what Debian Policy 5.6.1 and 5.6.12 allow, without the ends
// that apt-get reads as "remove".
var packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]*[a-z0-9+](=[A-Za-z0-9.+:~-]+)?$`)

// check fills in defaults and returns the image's name. Its errors name the
// field and the remedy.
func (s *Spec) check() (name.Tag, error) {
	tag, err := parseRef(s.Ref)
	if err != nil {
		return name.Tag{}, err
	}
	if err := s.checkContent(); err != nil {
		return name.Tag{}, err
	}
	if s.Architecture == "" {
		s.Architecture = runtime.GOARCH
	}
	if len(s.Packages) > 0 && s.Architecture != runtime.GOARCH {
		return name.Tag{}, fmt.Errorf("architecture: packages come for this machine's %s only, not for %q; leave the field empty", runtime.GOARCH, s.Architecture)
	}
	return tag, s.checkConfig()
}

func parseRef(ref string) (name.Tag, error) {
	const remedy = "write registry, name and tag, for example pelago.local/nginx:demo"
	if ref == "" {
		return name.Tag{}, fmt.Errorf("ref: it is empty; %s", remedy)
	}
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		return name.Tag{}, fmt.Errorf("ref: %q is not an image name (%w); %s", ref, err, remedy)
	}
	return tag, nil
}

func (s *Spec) checkContent() error {
	bases := 0
	for _, given := range []bool{s.Dir != "", s.GoPackage != "", len(s.Packages) > 0} {
		if given {
			bases++
		}
	}
	switch {
	case bases > 1:
		return fmt.Errorf("dir, go package, packages: an image has one of them; give the others as images of their own, or their files as files")
	case bases == 0 && len(s.Files) == 0:
		return fmt.Errorf("dir, go package, packages, files: all are empty; give one of them")
	case len(s.GoFlags) > 0 && s.GoPackage == "":
		return fmt.Errorf("go flags: there is no go package; give one, or leave the flags out")
	case strings.HasPrefix(s.GoPackage, "-"):
		return fmt.Errorf("go package: %q is a flag; give an import path or ./path", s.GoPackage)
	}
	for _, p := range s.Packages {
		if !packageName.MatchString(p) {
			return fmt.Errorf("packages: %q is not a Debian package; write NAME or NAME=VERSION", p)
		}
	}
	for _, in := range slices.Sorted(maps.Keys(s.Files)) {
		if !path.IsAbs(in) || path.Clean(in) != in || in == "/" || strings.ContainsRune(in, 0) {
			return fmt.Errorf("files: %q is not a plain absolute path in the image; write one such as /etc/motd", in)
		}
		if s.Files[in] == "" {
			return fmt.Errorf("files: %s has no file on disk; name one", in)
		}
	}
	return nil
}

func (s *Spec) checkConfig() error {
	if len(s.Entrypoint) > 0 && s.Entrypoint[0] == "" {
		return fmt.Errorf("entrypoint: the program is empty; name it or leave the whole field out")
	}
	for _, e := range s.Env {
		if name, _, found := strings.Cut(e, "="); !found || name == "" {
			return fmt.Errorf("env: %q is not NAME=VALUE; write it so", e)
		}
	}
	if s.WorkingDir != "" && !path.IsAbs(s.WorkingDir) {
		return fmt.Errorf("working dir: %q is not absolute; start it with /", s.WorkingDir)
	}
	if strings.ContainsAny(s.User, " \t\n") {
		return fmt.Errorf("user: %q has a space; write NAME, UID or UID:GID", s.User)
	}
	return nil
}

// checkOut refuses to write an image into the folder it is made of.
func (s *Spec) checkOut(out string) error {
	if s.Dir == "" {
		return nil
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return fmt.Errorf("finding %s: %w", s.Dir, err)
	}
	if out == dir || strings.HasPrefix(out, dir+string(filepath.Separator)) {
		return fmt.Errorf("dir: the image %s would lie in the folder %s it is made of; write it elsewhere", out, dir)
	}
	return nil
}

// environment is the Spec's, with a PATH.
func (s *Spec) environment() []string {
	if slices.ContainsFunc(s.Env, func(e string) bool { return strings.HasPrefix(e, "PATH=") }) {
		return s.Env
	}
	return append([]string{searchPath}, s.Env...)
}
