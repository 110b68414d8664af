package kubetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// EnvProgram names the pelago-sandbox to use instead of the one in bin/.
	EnvProgram = "PELAGO_SANDBOX"
	modulePath = "github.com/pelago-dev/pelago"
)

// Program returns the absolute path of pelago-sandbox: $PELAGO_SANDBOX or bin/ of
// this repository. The test fails with the command to run if there is none.
func Program(t testing.TB) string {
	t.Helper()
	program, err := findProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

func findProgram() (string, error) {
	if path := os.Getenv(EnvProgram); path != "" {
		if err := executable(path); err != nil {
			return "", fmt.Errorf("using %s=%s: %w; unset it or name a built pelago-sandbox", EnvProgram, path, err)
		}
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	root, err := repositoryRoot(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "pelago-sandbox")
	if err := executable(path); err != nil {
		return "", fmt.Errorf("bin/pelago-sandbox is missing; run `make -C %s build` once, then this test again", root)
	}
	return path, nil
}

// repositoryRoot walks up from dir to the directory whose go.mod is the product's.
func repositoryRoot(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+modulePath+"\n") {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("finding the repository: no go.mod of %s at or above %s; set %s", modulePath, dir, EnvProgram)
		}
	}
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return errors.New("not an executable file")
	}
	return nil
}
