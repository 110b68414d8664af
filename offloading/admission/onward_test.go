package admission

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// labelsOfTenants: where a tenant's pods may go is not said by who may label its namespace.
func labelsOfTenants(t *testing.T, g *guarded) {
	of := func(prefix string, labels map[string]string) *corev1.Namespace {
		labels[v1alpha1.LabelTenant], labels[v1alpha1.LabelHomeNamespace] = "milan", "shop"
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: g.must(t, g.manager, prefix, labels)}}
	}
	plain := of("mapped", map[string]string{})
	for key, value := range map[string]string{v1alpha1.LabelOnward: "true", v1alpha1.LabelOriginNamespace: "shop", v1alpha1.LabelOriginOwner: "0123456789abcdef"} {
		want(t, "setting "+key, relabel(t, g.c, plain, key, value, ""), "given by Pelago only")
		want(t, "setting "+key+" by the manager", relabel(t, g.manager, plain, key, value, ""))
		want(t, "changing "+key, relabel(t, g.c, plain, key, "other", ""), "given by Pelago only")
	}
	want(t, "a refusal to go onward", relabel(t, g.c, plain, v1alpha1.LabelOnward, nil, ""))
	for _, key := range []string{v1alpha1.LabelOriginNamespace, v1alpha1.LabelOriginOwner} {
		want(t, "taking off "+key, relabel(t, g.c, plain, key, nil, ""), "taken off by Pelago only")
	}
	want(t, "another label", relabel(t, g.c, plain, "team", "a", ""))
	want(t, "taking it away from the tenant", relabel(t, g.c, plain, v1alpha1.LabelTenant, nil, ""))
	want(t, "and then the rest", relabel(t, g.c, plain, v1alpha1.LabelOriginOwner, nil, ""))
	other := of("let", map[string]string{v1alpha1.LabelOriginOwner: "0123456789abcdef"})
	want(t, "taking it off by the manager", relabel(t, g.manager, other, v1alpha1.LabelOriginOwner, nil, ""))
}

// TestTenantsRefused: a tenant's pod heeds what is remembered of it, and of nobody else.
func TestTenantsRefused(t *testing.T) {
	const uid = "0a1b2c3d-0000-4000-8000-0000000000ff"
	labels := func(tenant, by string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{"pelago.dev/tenant":%q,"pelago.dev/managed-by":%q,"pelago.dev/home-uid":%q}},"spec":{}}`, tenant, by, uid)
	}
	for _, c := range []struct {
		reason, pod, owner string
		want               bool
	}{
		{"of its own", labels("paris", "pelago-manager"), "paris/" + uid, true},
		{"of another tenant's", labels("paris", "pelago-manager"), "rome/" + uid, false},
		{"of a controller of that UID", labels("paris", "pelago-manager"), uid, false},
		{"it says another tenant", labels("rome", "pelago-manager"), "paris/" + uid, false},
		{"somebody else made it", labels("paris", "me"), "paris/" + uid, false},
		{"labels that are none", `{"metadata":{"labels":{"pelago.dev/tenant":{},"pelago.dev/home-uid":7}},"spec":{}}`, "paris/" + uid, false},
	} {
		s := newShelf()
		s.namespaces["remote"].Labels = map[string]string{v1alpha1.LabelTenant: "paris", v1alpha1.LabelOnward: "true"}
		s.refusals["pelago-peering-milan"] = []v1alpha1.Refusal{{Owner: c.owner, Node: "milan", Count: 1, Until: metav1.NewTime(time.Now().Add(time.Hour))}}
		h, _ := handlerOf(t, s)
		got := answerOf(t, post(h, reviewOf("remote", c.pod)))
		if avoids := strings.Contains(string(got.Patch), `"values":["milan"]`); !got.Allowed || avoids != c.want {
			t.Errorf("%s: avoids it %t, %s", c.reason, avoids, got.Patch)
		}
	}
}

// TestHomeTokens: a tenant's pod with tokens of its home, which no provider runs, stays here if it
// may; else it is not sent from one to the next, and stays with the reason that forging gives it.
func TestHomeTokens(t *testing.T) {
	pod := func(uid, secret string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{"pelago.dev/home-uid":%q}},"spec":{"volumes":[{"name":"d","emptyDir":{}},{"name":"t","projected":{"sources":[{"configMap":{"name":"x"}},{"secret":{"name":%q}}]}}]}}`, uid, secret)
	}
	for _, c := range []struct {
		reason, namespace, pod string
		terms, elsewhere       bool
	}{
		{"its tokens", "labelled", pod("u1", v1alpha1.TokenSecret("u1")), false, true},
		{"its tokens, and it may run elsewhere only", "remote", pod("u1", v1alpha1.TokenSecret("u1")), true, false},
		{"somebody else's", "labelled", pod("u1", v1alpha1.TokenSecret("u2")), true, true},
		{"a Secret of its own", "labelled", pod("u1", "login"), true, true},
		{"nobody's pod", "labelled", pod("", v1alpha1.TokenSecret("")), true, true},
		{"without them, and it may run elsewhere only", "remote", pod("u1", "login"), true, true},
	} {
		s := newShelf()
		h, _ := handlerOf(t, s)
		got := answerOf(t, post(h, reviewOf(c.namespace, c.pod)))
		if terms := strings.Contains(string(got.Patch), v1alpha1.TaintVirtualNode); !got.Allowed || terms != c.terms {
			t.Errorf("%s: %s", c.reason, got.Patch)
		}
		made, _, err := look([]byte(c.pod))
		if err != nil {
			t.Fatal(err)
		}
		made.Namespace = c.namespace
		choice, err := NewChoices(s, s, clock.RealClock{}).Of(t.Context(), made)
		if err != nil || choice.Elsewhere("milan") != c.elsewhere {
			t.Errorf("%s: %+v, %v", c.reason, choice, err)
		}
	}
}
