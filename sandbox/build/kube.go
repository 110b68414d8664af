package build

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"

	"github.com/pelago-dev/pelago/sandbox/config"
)

// Kube returns the file of the program that holds Kubernetes of a version,
// building it if need be: some minutes the first time.
func (c Cache) Kube(ctx context.Context, version string) (string, error) {
	texts, err := sources("go.mod", "go.sum", "kube")
	if err != nil {
		return "", err
	}
	dir, err := c.Entry(ctx, filepath.Join("kube", version+"-"+Fingerprint(texts...)), func(ctx context.Context, dir string) error {
		source := filepath.Join(dir, "source")
		if err := unpack(source, texts); err != nil {
			return err
		}
		what := "Kubernetes " + version
		if version != config.DefaultVersion {
			if err := c.kubeModule(ctx, what, version, source); err != nil {
				return err
			}
		}
		c.say("%s: compiling, about 5 minutes on two cores the first time", what)
		if err := c.compile(ctx, what, source, "build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", kubeFlags(version), "-o", filepath.Join(dir, "kube"), "./kube"); err != nil {
			return err
		}
		return os.RemoveAll(source)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "kube"), nil
}

// kubeFlags stamps the version, without which Kubernetes takes itself for
// v0.0.0 and decides features wrongly.
func kubeFlags(version string) string {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	const at = "k8s.io/component-base/version."
	return fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=%s -X %sgitMinor=%s", at, version, at, parts[0], at, parts[1])
}

// kubeModule writes the module file for a version other than the default: the
// release's own requirements, with its staging modules at their published
// versions.
func (c Cache) kubeModule(ctx context.Context, what, version, source string) error {
	release := exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	release.Dir = source
	text, err := release.Output()
	var module struct{ GoMod, Error string }
	if jsonErr := json.Unmarshal(text, &module); jsonErr != nil || module.GoMod == "" {
		return fmt.Errorf("there is no release %s to be had; choose another version: %s", version, cmp.Or(module.Error, fmt.Sprint(err)))
	}
	text, err = os.ReadFile(module.GoMod)
	if err != nil {
		return fmt.Errorf("reading requirements of %s: %w", what, err)
	}
	file, err := kubeRequirements(text, version)
	if err != nil {
		return fmt.Errorf("reading requirements of %s: %w", what, err)
	}
	if err := os.WriteFile(filepath.Join(source, "go.mod"), file, 0o644); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(source, "go.sum")); err != nil {
		return err
	}
	return c.compile(ctx, what+" (requirements)", source, "mod", "tidy")
}

// kubeRequirements turns the module file of a Kubernetes release into one for
// our program: what the release replaces by its own folders is required as the
// module published from that folder.
func kubeRequirements(release []byte, version string) ([]byte, error) {
	in, err := modfile.ParseLax("go.mod", release, nil)
	if err != nil {
		return nil, err
	}
	full, err := modfile.Parse("go.mod", release, nil)
	if err != nil {
		return nil, err
	}
	staging := "v0." + strings.SplitN(version, ".", 2)[1]
	out := &modfile.File{}
	if err := out.AddModuleStmt("github.com/pelago-dev/pelago/sandbox"); err != nil {
		return nil, err
	}
	if err := out.AddGoStmt(in.Go.Version); err != nil {
		return nil, err
	}
	replaced := map[string]bool{}
	for _, replace := range full.Replace {
		replaced[replace.Old.Path] = true
	}
	out.AddNewRequire("k8s.io/kubernetes", version, false)
	for _, require := range full.Require {
		if replaced[require.Mod.Path] {
			if !strings.Contains(require.Mod.Path, "/sample-") {
				out.AddNewRequire(require.Mod.Path, staging, false)
			}
			continue
		}
		out.AddNewRequire(require.Mod.Path, require.Mod.Version, require.Indirect)
	}
	return out.Format()
}
