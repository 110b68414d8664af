package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// compileTime is the longest a Go package may take to compile.
const compileTime = 30 * time.Minute

// addProgram compiles the Go package to /NAME.
func (b *builder) addProgram(ctx context.Context) error {
	b.progress("compiling " + b.spec.GoPackage)
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	dir := filepath.Join(b.work, "go")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("compiling %s: %w", b.spec.GoPackage, err)
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}
	args = append(args, b.spec.GoFlags...)
	args = append(args, "-o", dir+"/", b.spec.GoPackage)
	cmd := command(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+b.spec.Architecture)
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("go package: compiling %s: %w", b.spec.GoPackage, err)
	}
	built, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("compiling %s: %w", b.spec.GoPackage, err)
	}
	if len(built) != 1 {
		return fmt.Errorf("go package: %s has %d main packages; name exactly one", b.spec.GoPackage, len(built))
	}
	name := built[0].Name()
	if err := addSkeleton(b.tree); err != nil {
		return err
	}
	if len(b.spec.Entrypoint) == 0 {
		b.spec.Entrypoint = []string{"/" + name}
	}
	if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
		return fmt.Errorf("compiling %s: %w", b.spec.GoPackage, err)
	}
	return addFiles(b.tree, map[string]string{"/" + name: filepath.Join(dir, name)})
}

// command is a program with its own process group, all of which ends with ctx.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// complaint is the most that is kept of what a program complains about.
const complaint = 4096

// output runs a program and returns what it prints. Its error holds the end of
// what the program complained about.
func output(cmd *exec.Cmd) (string, error) {
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(complaints.String())
		if len(said) > complaint {
			said = "… " + said[len(said)-complaint:]
		}
		if said == "" {
			return "", err
		}
		return "", fmt.Errorf("%w:\n%s", err, said)
	}
	return out.String(), nil
}
