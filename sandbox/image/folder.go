package image

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// addFolder puts the content of a folder on disk into the tree: files, folders
// and symbolic links with their modes, owned by root. Anything else, and a link
// that cannot mean the same in the image, is refused.
func addFolder(ctx context.Context, t *tree, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("dir: finding %s: %w", dir, err)
	}
	if stat, err := os.Stat(dir); err != nil || !stat.IsDir() {
		return fmt.Errorf("dir: %s is not a folder that can be read; name one", dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return fmt.Errorf("dir: %w", err)
	}
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("reading dir: %w", err)
		}
		if file == dir {
			return nil
		}
		inside, err := filepath.Rel(dir, file)
		if err != nil {
			return fmt.Errorf("reading dir: %w", err)
		}
		e, err := diskEntry(dir, file, inside)
		if err != nil {
			return err
		}
		return t.put(inside, e)
	})
}

// diskEntry describes one thing found in a folder.
func diskEntry(dir, file, inside string) (*entry, error) {
	stat, err := os.Lstat(file)
	if err != nil {
		return nil, fmt.Errorf("reading dir: %w", err)
	}
	switch stat.Mode().Type() {
	case 0:
		return fileEntry(file, stat), nil
	case fs.ModeDir:
		return &entry{kind: folder, mode: tarMode(stat.Mode())}, nil
	case fs.ModeSymlink:
		target, err := os.Readlink(file)
		if err != nil {
			return nil, fmt.Errorf("reading dir: %w", err)
		}
		if err := checkLink(dir, inside, target); err != nil {
			return nil, err
		}
		return &entry{kind: symlink, mode: 0o777, target: target}, nil
	}
	return nil, fmt.Errorf("dir: %s is neither file, folder nor symbolic link (%s); take it out of the folder", file, stat.Mode().Type())
}

// checkLink refuses a link that means something else in the image than on disk.
func checkLink(dir, inside, target string) error {
	if path.IsAbs(target) {
		if target == dir || strings.HasPrefix(target, dir+"/") {
			return fmt.Errorf("dir: the link %s names its target by the path on this machine (%s); make it relative", inside, target)
		}
		return nil
	}
	end := path.Join(path.Dir(filepath.ToSlash(inside)), target)
	if end == ".." || strings.HasPrefix(end, "../") {
		return fmt.Errorf("dir: the link %s leads out of the folder (%s); let it point inside, or make it absolute", inside, target)
	}
	return nil
}

// addFiles puts single files into the tree, over what is there.
func addFiles(t *tree, files map[string]string) error {
	for _, inside := range slices.Sorted(maps.Keys(files)) {
		stat, err := os.Stat(files[inside])
		if err != nil {
			return fmt.Errorf("files: %s: %w; name a file that is there", inside, err)
		}
		if !stat.Mode().IsRegular() {
			return fmt.Errorf("files: %s: %s is not a regular file; name each file by itself", inside, files[inside])
		}
		if err := t.put(inside, fileEntry(files[inside], stat)); err != nil {
			return fmt.Errorf("files: %w", err)
		}
	}
	return nil
}

// fileEntry is a regular file on disk. Opening it never waits, should it have
// become a pipe meanwhile.
func fileEntry(file string, stat fs.FileInfo) *entry {
	return &entry{kind: regular, mode: tarMode(stat.Mode()), size: stat.Size(), open: func() (io.ReadCloser, error) {
		return os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	}}
}

// tarMode turns Go's mode bits into those of a tar header.
func tarMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	for bit, value := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			mode |= value
		}
	}
	return mode
}

// addSkeleton puts in what a lone program may expect: a /tmp to write to and
// the names of root and nobody.
func addSkeleton(t *tree) error {
	for p, e := range map[string]*entry{
		"tmp":        {kind: folder, mode: 0o1777},
		"etc/passwd": text(0o644, []byte("root:*:0:0:root:/:/bin/sh\nnobody:*:65534:65534:nobody:/:/bin/false\n")),
		"etc/group":  text(0o644, []byte("root:*:0:\nnogroup:*:65534:\n")),
	} {
		if err := t.put(p, e); err != nil {
			return err
		}
	}
	return nil
}
