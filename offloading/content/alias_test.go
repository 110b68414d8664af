package content

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestNamed holds that an ExternalName in home's own domain travels as one that every provider knows, that
// the provider makes its own name of it, and that all others stay what they are.
func TestNamed(t *testing.T) {
	rules := Rules{Spaces: map[string]string{"shop": "shop-rome"}, Domain: "milan.example"}
	for _, c := range []struct{ domain, name, sent, here string }{
		{"rome.example", "db.shop.svc.rome.example", "db.shop.svc.cluster.local", "db.shop-rome.svc.milan.example"},
		{"Rome.Example.", "db.shop.svc.rome.example.", "db.shop.svc.cluster.local", "db.shop-rome.svc.milan.example"},
		{"rome.example", "rome.example", "rome.example", "rome.example"},             // no Service has it, and the world may
		{"rome.example", "db1.rome.example", "db1.rome.example", "db1.rome.example"}, // a host in the same zone
		{"rome.example", "db.other.example", "db.other.example", "db.other.example"},
		{"rome.example", "chrome.example", "chrome.example", "chrome.example"},
		{"cluster.local", "db.shop.svc.cluster.local", "db.shop.svc.cluster.local", "db.shop-rome.svc.milan.example"},
		{"", "db.shop.svc.rome.example", "db.shop.svc.rome.example", "db.shop.svc.rome.example"},
		{"rome.example", "db.shop.svc.milan.example", "db.shop.svc.milan.example", ""}, // the provider's own
	} {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: c.name}}
		sent, ok := Named(s, c.domain).(*corev1.Service)
		if !ok || sent.Spec.ExternalName != c.sent || s.Spec.ExternalName != c.name {
			t.Errorf("%s of %q travels as %+v, want %s", c.name, c.domain, sent, c.sent)
			continue
		}
		if here, wrong := rules.alias(sent.Spec.ExternalName); here != c.here || (wrong == "") != (c.here != "") {
			t.Errorf("%s of %q is %q there, %s, want %q", c.name, c.domain, here, wrong, c.here)
		}
	}
	other := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "None"}}
	if Named(other, "rome.example") != other {
		t.Error("a Service without a name of another is not as it was")
	}
}
