package build

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// Program returns the file of an add-on's program, building it if need be. Its
// source is a file of this module (addons/NAME/main.go) or the import path of a
// main package that the module file modules requires.
func (c Cache) Program(ctx context.Context, name, source, modules string) (string, error) {
	texts, err := sources(modules, strings.TrimSuffix(modules, ".mod")+".sum", "addons")
	if err != nil {
		return "", err
	}
	// go build -modfile wants a go.mod to be there and does not read it.
	texts = append(texts, "go.mod", "module github.com/pelago-dev/pelago/sandbox\n")
	dir, err := c.Entry(ctx, filepath.Join("programs", name+"-"+Fingerprint(append(texts, source)...)), func(ctx context.Context, dir string) error {
		tree := filepath.Join(dir, "source")
		if err := unpack(tree, texts); err != nil {
			return err
		}
		err := c.compile(ctx, name, tree, "build", "-v", "-trimpath", "-buildvcs=false", "-modfile="+modules, "-ldflags=-s -w", "-o", filepath.Join(dir, name), source)
		if err != nil {
			return err
		}
		return os.RemoveAll(tree)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}
