package namespace

import (
	"encoding/json"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// FuzzArrange: whatever namespaces a consumer asks for, it gets no more than it may have,
// none that is reserved, not granted or somebody else's, and plain words about the rest.
func FuzzArrange(f *testing.F) {
	f.Add([]byte(`{"namespaces":{"shop":{"strategy":"DefaultName"},"a":{"strategy":"SelectedName","remoteName":"team-a"}}}`), int32(3), "team-*")
	f.Add([]byte(`{"namespaces":{"a":{"strategy":"SelectedName","remoteName":"kube-system"},"b":{"strategy":"EnforceSameName"},"default":{"strategy":"EnforceSameName"}}}`), int32(1), "*")
	f.Add([]byte(`{"namespaces":{"":{},"A/B":{"strategy":"x\u001b"},"c":{"strategy":"SelectedName","remoteName":"\u202e"},"theirs":{"strategy":"EnforceSameName"}}}`), int32(0), "theirs")
	f.Add([]byte(`{"namespaces":{"a":{"strategy":"DefaultName","onward":"Allow"},"b":{"strategy":"DefaultName","onward":"Allow","originNamespace":"shop","originOwner":"0123456789abcdef"},"c":{"strategy":"DefaultName","originNamespace":"A/B","originOwner":"x"}}}`), int32(9), "")
	f.Fuzz(func(t *testing.T, text []byte, most int32, grant string) {
		m := &v1alpha1.NamespaceMap{}
		if json.Unmarshal(text, &m.Spec) != nil {
			return
		}
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
		tenant.Spec.NamespaceNames, tenant.Spec.Limits = []string{grant}, &v1alpha1.TenantLimits{Namespaces: ptr.To(max(most, 0))}
		theirs := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
		e := &estate{
			now: time.Unix(1_800_000_000, 0), tenant: tenant, system: "pelago-system", desired: m, subject: &rbacv1.Subject{Kind: "User", Name: "rome"},
			existing: map[string]*corev1.Namespace{"theirs": theirs}, bindings: map[string]*rbacv1.RoleBinding{},
			own: map[string]*rbacv1.RoleBinding{}, leaving: map[string]departure{},
		}
		d := arrange(e)
		names := map[string]bool{}
		for _, s := range d.steps {
			if s.remove || s.unbind || s.rebind || s.rearm || s.relabel {
				t.Fatalf("touches what is there: %+v", s)
			}
			if names[s.name] || len(validation.IsDNS1123Label(s.name)) > 0 || len(validation.IsDNS1123Label(s.home)) > 0 || reserved(s.name, e.system) || s.name == "theirs" {
				t.Fatalf("makes %q", s.name)
			}
			if s.name != v1alpha1.DefaultRemoteNamespace(s.home, "rome") && !granted(tenant.Spec.NamespaceNames, s.name) {
				t.Fatalf("makes %q, which may not be chosen", s.name)
			}
			names[s.name] = true
			asked, made := m.Spec.Namespaces[s.home], mappedNamespace(s.name, s.home, s.entry, tenant).Labels
			if made[v1alpha1.LabelOnward] != "" && (asked.Onward != v1alpha1.OnwardAllow || asked.OriginNamespace != "" || asked.OriginOwner != "") || made[v1alpha1.LabelTenant] != "rome" {
				t.Fatalf("of %+v is made %v", asked, made)
			}
			for key, value := range made {
				if len(validation.IsValidLabelValue(value)) > 0 || key == v1alpha1.LabelOriginOwner && !v1alpha1.IsOrigin("shop", value) {
					t.Fatalf("label %s=%q", key, value)
				}
			}
		}
		if len(d.steps) > creations || len(d.steps) > int(max(most, 0)) || len(d.said) > maxNamespaces {
			t.Fatalf("%d steps, %d answers", len(d.steps), len(d.said))
		}
		d.report(m)
		for home, said := range m.Status.Namespaces {
			if said.Phase == v1alpha1.MappingReady && !names[said.Name] {
				t.Fatalf("%q is said to be ready", home)
			}
			if len(said.Message) > 1024 || !reasonWord.MatchString(said.Reason) {
				t.Fatalf("of %q is said %+v", home, said)
			}
			for _, r := range said.Message {
				if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
					t.Fatalf("%U in %q", r, said.Message)
				}
			}
		}
	})
}
