package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// TestUnreadableSettings holds that an upgrade does not put settings of the last installation in the
// place of edited ones with a mistake in them, unless it is given what they are to be; and that they
// keep nobody from uninstalling.
func TestUnreadableSettings(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: valuesName},
		Data: map[string]string{valuesKey: "config: {cluster: {name: rome}, apiServer: {url: 'https://old.example:6443'}, offer: {reserve: 10%}}\n"}},
		&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1, Provide: &v1alpha1.Provide{Tenant: "milan"}}})
	edit := func(text string) {
		t.Helper()
		var config corev1.ConfigMap
		if err := s.c.Get(t.Context(), inSystem(v1alpha1.ConfigName), &config); err != nil {
			t.Fatal(err)
		}
		config.Data[home.ConfigKey] = text
		if err := s.c.Update(t.Context(), &config); err != nil {
			t.Fatal(err)
		}
	}
	file := func(text string) string {
		t.Helper()
		name := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const edited = "cluster: {name: rome}\napiServer: {url: 'https://new.example:6443'}\noffer: {reserve: 30%}\n"
	edit(edited)
	if got := s.run("install", "--dry-run"); got.code != 0 || !strings.Contains(got.out, "https://new.example:6443") || strings.Contains(got.out, "old.example") {
		t.Errorf("settings without a mistake: %d, %s", got.code, got.err)
	}
	some, whole := file("config: {offer: {reserve: 5%}}\n"), file("config: {cluster: {name: florence}, apiServer: {url: 'https://florence.example:6443'}}\n")
	for reason, text := range map[string]string{
		"no YAML":             edited + "\ttenant: [\n",
		"a field given twice": edited + "offer: {reserve: 50%}\n",
		"no map":              "- rome\n",
	} {
		edit(text)
		for _, flags := range [][]string{nil, {"--set", "config.cluster.name=rome"}, {"--values", some}} {
			got := s.run(append([]string{"install", "--dry-run"}, flags...)...)
			if got.code != 1 || got.out != "" || !strings.Contains(got.err, "the settings in ConfigMap pelago-config of namespace pelago-system cannot be read: ") ||
				!strings.Contains(got.err, "; correct them, or give --values FILE") {
				t.Errorf("%s, with %v: %d, %s", reason, flags, got.code, got.err)
			}
		}
		got := s.run("install", "--dry-run", "--values", whole)
		if got.code != 0 || !strings.Contains(got.err, "cannot be read and are replaced by those given: ") || !strings.Contains(got.out, "name: florence") ||
			strings.Contains(got.out, "old.example") || strings.Contains(got.out, "reserve: 10%") {
			t.Errorf("%s, given anew: %d, %s", reason, got.code, got.err)
		}
		if got := s.run("uninstall"); got.code != 1 || !strings.Contains(got.err, "run: pelago unpeer milan") {
			t.Errorf("%s, uninstalling: %+v", reason, got)
		}
	}
}
