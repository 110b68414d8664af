//go:build promtool

package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestPromtool has promtool, the program that PELAGO_PROMTOOL names, read the alerts and the
// dashboard's queries, and try each alert.
func TestPromtool(t *testing.T) {
	program := os.Getenv("PELAGO_PROMTOOL")
	if program == "" {
		t.Fatal("set PELAGO_PROMTOOL to the program promtool; make test does")
	}
	run := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	run("check", "rules", "chart/monitoring/rules.yaml")
	run("test", "rules", "testdata/rules.yaml")

	// It reads rules only: each query is made one.
	var rules []map[string]any
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			rules = append(rules, map[string]any{"record": fmt.Sprintf("panel:%d:%s", p.ID, q.RefID), "expr": q.Expr})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	run("check", "rules", file)
}
