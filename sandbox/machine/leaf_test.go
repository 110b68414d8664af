package machine

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLeaveGroupRoot holds, on plain folders, what must be written where: only a
// version 2 hierarchy that has controllers is touched.
func TestLeaveGroupRoot(t *testing.T) {
	cases := []struct {
		reason, kind, controllers string
		moved                     bool
	}{
		{"version 2 forbids processes beside children with controllers", "cgroup2", "cpu memory", true},
		{"the version 2 part of a hybrid layout has no controllers", "cgroup2", "", false},
		{"version 1 has no such rule", "cgroup", "cpu", false},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"cgroup.controllers": c.controllers, "cgroup.subtree_control": ""} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := leaveGroupRoot([]hierarchy{{Mount: dir, Type: c.kind}}); err != nil {
				t.Fatal(err)
			}
			procs, err := os.ReadFile(filepath.Join(dir, "init", "cgroup.procs"))
			if moved := err == nil && string(procs) == "0"; moved != c.moved {
				t.Errorf("moved to a leaf: %t, want %t", moved, c.moved)
			}
			control, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
			if handed := len(control) > 0; handed != c.moved {
				t.Errorf("controllers handed on: %q", control)
			}
		})
	}
}
