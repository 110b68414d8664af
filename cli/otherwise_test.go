package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestInstalledOtherwise holds that an installation of Helm, or of its chart by another tool, is
// left alone, and that what is said leads to where it can be changed.
func TestInstalledOtherwise(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", "11111111-1111-4111-8111-111111111111")
	for _, c := range []struct {
		reason, release string
		want, not       string
	}{
		{"by Helm", "sea", "helm uninstall sea -n pelago-system", "GitOps"},
		{"by helm template", "", "GitOps", "helm uninstall"},
	} {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.ConfigName}}
		text := `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"}}}`
		if c.release != "" {
			text = `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"},"annotations":{"meta.helm.sh/release-name":"` + c.release + `","meta.helm.sh/release-namespace":"pelago-system"}}}`
		} else if err := s.merged(s.c, config, `{"metadata":{"annotations":null}}`, ""); err != nil {
			t.Fatal(err)
		}
		if err := s.merged(s.c, config, text, ""); err != nil {
			t.Fatal(err)
		}
		for _, command := range []string{"install", "uninstall"} {
			r := s.run(command)
			said := strings.Join(strings.Fields(r.err), " ")
			if r.code == 0 || !strings.Contains(said, c.want) || strings.Contains(said, c.not) {
				t.Errorf("%s: pelago %s says %q, want %q and not %q", c.reason, command, said, c.want, c.not)
			}
			if !strings.Contains(said, "first end") {
				t.Errorf("%s: pelago %s does not say what to end first: %q", c.reason, command, said)
			}
		}
	}
}
