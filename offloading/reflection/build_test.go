package reflection

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// build says what the provider is.
func (w *world) build(features ...string) {
	w.t.Helper()
	p := get(w, "", w.name, &v1alpha1.Peering{})
	if p == nil {
		p = &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: v1alpha1.PeeringSpec{ClusterID: string(uuid.NewUUID()), Provide: &v1alpha1.Provide{Tenant: w.name}}}
		w.create(p)
	}
	p.Status.Remote = &v1alpha1.ClusterInfo{ID: p.Spec.ClusterID, Name: "milan", Version: "v0.0.9", Features: features}
	if err := w.raw.Status().Update(ctx, p); err != nil {
		w.t.Fatal(err)
	}
}

// TestOlderBuild: what a provider's build does not know is not sent to it, which is said
// once, and travels when the provider is upgraded.
func TestOlderBuild(t *testing.T) {
	w := newWorld(t)
	w.build(v1alpha1.FeaturePeering, v1alpha1.FeatureOfKind(kindSecret))
	w.create(service(w.home, "web"))
	w.create(pullSecret(w.home, "registry", "x"))
	w.pod("web", "registry")
	w.as(kindService, "web")
	w.as(kindService, "web")
	if w.shadow("web") != nil || w.told("v0.0.9") != 1 {
		t.Errorf("a Service that milan does not know: sent %v, said %d times", w.shadow("web") != nil, w.told("v0.0.9"))
	}
	w.as(kindSecret, "registry")
	if w.made("registry") == nil {
		t.Error("a Secret, which it knows, is not there")
	}
	w.build(v1alpha1.FeaturePeering, v1alpha1.FeatureOfKind(kindSecret), v1alpha1.FeatureOfKind(kindService))
	w.as(kindService, "web")
	if w.shadow("web") == nil || w.answer("web") != "True/Ready" {
		t.Error("upgraded, and it is not sent")
	}
}

// TestBuildWithoutWords: a build from before the words of reflection is sent what such
// builds know.
func TestBuildWithoutWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.build(v1alpha1.FeatureOffers, v1alpha1.FeaturePeering)
	w.create(service(w.home, "web"))
	w.pod("web")
	w.as(kindService, "web")
	if w.answer("web") != "True/Ready" {
		t.Error(w.answer("web"))
	}
}

// TestOutgrown: a provider's API server whose definitions are older is understood, in its
// own words.
func TestOutgrown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := shadowOf(v1alpha1.HomeObject{Kind: "Widget", Namespace: w.home, Name: "x"}, "{}")
	s.Namespace = w.TenantNamespace()
	if err := w.raw.Create(ctx, s); !outgrown(err) {
		t.Errorf("a kind that is not in the definition: %v", err)
	}
	w.create(service(w.home, "web"))
	w.pod("web")
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*v1alpha1.ShadowObject); ok && verb == "create" {
			return fmt.Errorf("%w: spec.later", fleet.ErrOlder)
		}
		return nil
	}
	w.kind = kindService
	w.send("web")
	w.send("web")
	if w.told("upgrade") != 1 {
		t.Errorf("said %d times", w.told("upgrade"))
	}
}

// TestLaterFields: what a later build has written into a ShadowObject stays when this one
// changes it, from either side.
func TestLaterFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "one"))
	w.pod("web", "registry")
	w.both("registry")
	kept := kubetest.Later(t, w.raw, w.shadow("registry"))
	s := get(w, w.home, "registry", pullSecret("", "", ""))
	s.Data[jsonKey] = login("two")
	w.update(s)
	w.both("registry")
	if w.password("registry") != "two" {
		t.Error("the change has not travelled")
	}
	kept()
}

// TestWordsOfKinds: whoever adds a kind that travels is told that builds have to say so.
func TestWordsOfKinds(t *testing.T) {
	said := []string{kindSlice, kindPolicy} // kinds that came with a word, in the features of internal/home
	for _, kind := range carried {
		if !v1alpha1.KeepsKind(nil, kind) && !slices.Contains(said, kind) {
			t.Errorf("%s travels, and older builds do not know it: add %s to the features of internal/home, and the kind here", kind, v1alpha1.FeatureOfKind(kind))
		}
	}
}
