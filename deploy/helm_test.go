//go:build helm

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestHelm compares with Helm itself, the program that PELAGO_HELM names.
func TestHelm(t *testing.T) {
	helm := os.Getenv("PELAGO_HELM")
	if helm == "" {
		t.Fatal("set PELAGO_HELM to the program helm; make test-all does")
	}
	for name, values := range map[string]map[string]any{"default": minimal(), "everything": everything(), "without": withoutNetwork(everything())} {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), helm, "template", "pelago", "chart", "--namespace", "pelago-system",
				"--include-crds", "--kube-version", "v1.36.3", "--values", file)
			cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("helm: %v: %s", err, complaints.String())
			}
			theirs, err := decode(string(out))
			if err != nil {
				t.Fatal(err)
			}
			slices.SortStableFunc(theirs, inOrder)
			ours := render(t, values, Release{Service: "Helm"})
			if diff := cmp.Diff(asText(t, theirs), asText(t, ours)); diff != "" {
				t.Errorf("helm (-) and Render (+) differ:\n%s", diff)
			}
		})
	}
}
