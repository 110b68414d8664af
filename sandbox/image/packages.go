package image

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mergedFolders are links into /usr on every Debian since 12. They are made
// first, so that packages that still say /bin and /lib land in the right place.
var mergedFolders = []string{"bin", "sbin", "lib", "lib64"}

// addPackages resolves, downloads and unpacks Debian packages, and finishes
// what their maintainer scripts would have done.
func (b *builder) addPackages(ctx context.Context) error {
	a, err := newApt(b.spec.Cache, filepath.Join(b.work, "apt"), b.progress)
	if err != nil {
		return err
	}
	debs, err := a.fetch(ctx, withBusybox(b.spec.Packages))
	if err != nil {
		return err
	}
	for _, dir := range mergedFolders {
		if err := b.tree.put(dir, &entry{kind: symlink, mode: 0o777, target: "usr/" + dir}); err != nil {
			return err
		}
	}
	for p, target := range map[string]string{"var/run": "/run", "var/lock": "/run/lock"} {
		if err := b.tree.put(p, &entry{kind: symlink, mode: 0o777, target: target}); err != nil {
			return err
		}
	}
	b.progress(fmt.Sprintf("unpacking %d packages", len(debs)))
	spool, err := os.Create(filepath.Join(b.work, "spool"))
	if err != nil {
		return fmt.Errorf("unpacking packages: %w", err)
	}
	// The tree reads from the spool until the layer is written. Whoever reads
	// opens it again by name, so that it need not stay open here.
	defer func() { _ = spool.Close() }()
	names := map[string]bool{}
	var offers []alternative
	for _, file := range debs {
		if err := unpack(ctx, b.tree, spool, file); err != nil {
			return err
		}
		more, err := readAlternatives(ctx, file)
		if err != nil {
			return err
		}
		offers = append(offers, more...)
		names[packageOf(file)] = true
	}
	if err := linkAlternatives(b.tree, offers); err != nil {
		return err
	}
	if err := finish(b.tree, names); err != nil {
		return err
	}
	return b.addApplets(ctx)
}

// withBusybox adds busybox unless the packages have it. Debian packages do not
// say that they depend on sh, cp or sed, because every Debian has them.
func withBusybox(packages []string) []string {
	if slices.ContainsFunc(packages, func(p string) bool {
		n := nameOf(p)
		return n == "busybox" || n == "busybox-static"
	}) {
		return packages
	}
	return append(slices.Clone(packages), "busybox-static")
}

// nameOf is the name in NAME or NAME=VERSION.
func nameOf(p string) string {
	name, _, _ := strings.Cut(p, "=")
	return name
}

// packageOf is the name in NAME_VERSION_ARCHITECTURE.deb.
func packageOf(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), "_")
	return name
}

// section is a part of a file, opened when it is read.
func section(file string, at, size int64) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, at, size), f}, nil
	}
}
