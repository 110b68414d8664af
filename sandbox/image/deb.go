package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// unpackTime is the longest one package may take to unpack.
const unpackTime = 5 * time.Minute

// unpack puts the files of a .deb into the tree. Their content goes to the end
// of the spool, where the tree finds it. Maintainer scripts are not even read.
func unpack(ctx context.Context, t *tree, spool *os.File, file string) error {
	ctx, cancel := context.WithTimeout(ctx, unpackTime)
	defer cancel()
	cmd := command(ctx, "dpkg-deb", "--fsys-tarfile", file)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
	}
	err = unpackTar(t, spool, out, packageOf(file))
	if err != nil {
		_ = cmd.Cancel()
	}
	if _, drain := io.Copy(io.Discard, out); drain != nil && err == nil {
		err = drain
	}
	if wait := cmd.Wait(); wait != nil && err == nil {
		err = fmt.Errorf("%w: %s; if the file is damaged, delete %s", wait, strings.TrimSpace(complaints.String()), file)
	}
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
	}
	return nil
}

func unpackTar(t *tree, spool *os.File, in io.Reader, pkg string) error {
	for r := tar.NewReader(in); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !wanted(pkg, clean(h.Name)) {
			continue
		}
		e := &entry{kind: h.Typeflag, mode: h.Mode & 0o7777, uid: h.Uid, gid: h.Gid, target: h.Linkname}
		switch h.Typeflag {
		case regular:
			if e, err = spooled(e, spool, r); err != nil {
				return err
			}
		case tar.TypeLink:
			if e = t.find(h.Linkname); e == nil {
				return fmt.Errorf("the hard link %s has no target %s", h.Name, h.Linkname)
			}
		case folder, symlink:
		default:
			return fmt.Errorf("%s is a device or a pipe; packages that bring such things cannot be used", h.Name)
		}
		if err := t.put(h.Name, e); err != nil {
			return err
		}
	}
}

// spooled copies a file's content to the end of the spool.
func spooled(e *entry, spool *os.File, content io.Reader) (*entry, error) {
	at, err := spool.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	if e.size, err = io.Copy(spool, content); err != nil {
		return nil, err
	}
	e.target = ""
	e.open = section(spool.Name(), at, e.size)
	return e, nil
}

// unwantedFolders hold what only people at a terminal read.
var unwantedFolders = []string{
	"usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian",
	"usr/share/doc-base", "usr/share/bug", "usr/share/gtk-doc", "usr/share/menu",
}

// wanted reports whether a package's file goes into the image. Of documents
// only the licences do; of base-passwd only the lists of users.
func wanted(pkg, key string) bool {
	if pkg == passwdPackage {
		return key == passwdMaster || key == groupMaster
	}
	for _, dir := range unwantedFolders {
		if key == dir || strings.HasPrefix(key, dir+"/") {
			return false
		}
	}
	if inside, is := strings.CutPrefix(key, "usr/share/doc/"); is {
		return !strings.Contains(inside, "/") || path.Base(key) == "copyright"
	}
	return true
}
