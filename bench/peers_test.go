package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const (
	// fewPeers of manyPeers have the label; a round is a fraction of a second.
	fewPeers, manyPeers = 5, 20
	peerRounds          = 7
	fewLabel            = "few"
)

// theFew are those with the label.
var theFew = v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{{
	MatchExpressions: []v1alpha1.ClusterRequirement{{Key: fewLabel, Operator: string(corev1.NodeSelectorOpIn), Values: []string{"yes"}}},
}}}

// peers measures how long one namespace takes to be offloaded to few and to many
// providers: control planes on loopback, for so many machines are not to be had.
func peers(t *testing.T, g *growth) {
	r := peersRack(t)
	r.Peer(t)
	providers := r.Providers()
	var few, many sample
	for i := range peerRounds + 1 {
		f := offloadTo(t, r, fmt.Sprintf("few-%d", i), providers[:fewPeers], &theFew)
		m := offloadTo(t, r, fmt.Sprintf("many-%d", i), providers, nil)
		if i > 0 { // the first of each fills caches
			few, many = append(few, f), append(many, m)
		}
	}
	t.Logf("one namespace to %d peers: %s; to %d: %s", fewPeers, few, manyPeers, many)
	g.holds(t, "peers", few, many, fewPeers, manyPeers)
}

// peersRack is one consumer and many providers, of which the first few have a label.
func peersRack(t *testing.T) *kubetest.Rack {
	t.Helper()
	o := kubetest.RackOptions{Consumer: "rome", Labels: map[string][]string{}}
	text := "profile: control-plane\nclusters:\n- name: rome\n"
	for i := range manyPeers {
		name := fmt.Sprintf("p%02d", i+1)
		o.Providers = append(o.Providers, name)
		text += "- name: " + name + "\n"
		if i < fewPeers {
			o.Labels[name] = []string{fewLabel + "=yes"}
		}
	}
	file := filepath.Join(t.TempDir(), "sandbox.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubetest.NewRack(t, kubetest.Sandbox(t, kubetest.Options{Name: "peers", File: file}), o)
}

// offloadTo offloads a new namespace to the providers that a selector chooses, and brings
// it home. It returns how long it took until it was Ready, at exactly those.
func offloadTo(t *testing.T, r *kubetest.Rack, name string, providers []string, selector *v1alpha1.ClusterSelector) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), itemLimit)
	defer cancel()
	rome := r.Clients["rome"]
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	offloading := &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OffloadingName, Namespace: name},
		Spec: v1alpha1.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: v1alpha1.MappingDefaultName, PodOffloadingStrategy: v1alpha1.PodsLocalAndRemote, ClusterSelector: selector,
		},
	}
	if err := rome.Create(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	ready := watchReady(t, rome, &v1alpha1.NamespaceOffloadingList{}, func(object client.Object) bool {
		o, ok := object.(*v1alpha1.NamespaceOffloading)
		return ok && o.Namespace == name && o.Status.Phase == v1alpha1.OffloadingPhaseReady
	})
	begin := time.Now()
	if err := rome.Create(ctx, offloading); err != nil {
		t.Fatal(err)
	}
	took := ready(1).Sub(begin)
	if at := placesOf(t, r); !slices.Equal(at, providers) {
		t.Errorf("a namespace offloaded to %v is at %v when it is Ready", providers, at)
	}
	if err := rome.Delete(ctx, offloading); err != nil {
		t.Fatal(err)
	}
	poll(t, 100*time.Millisecond, itemLimit, "the namespace is home again", func() error {
		if at := placesOf(t, r); len(at) > 0 {
			return fmt.Errorf("it is at %v", at)
		}
		return none(t, r.Continuum, "rome", &v1alpha1.NamespaceOffloadingList{})
	})
	if err := rome.Delete(ctx, namespace); err != nil {
		t.Fatal(err)
	}
	return took
}

// placesOf are the providers that have a namespace of the consumer.
func placesOf(t *testing.T, r *kubetest.Rack) (at []string) {
	t.Helper()
	for _, provider := range r.Providers() {
		if none(t, r.Continuum, provider, &corev1.NamespaceList{}, client.HasLabels{v1alpha1.LabelHomeNamespace}) != nil {
			at = append(at, provider)
		}
	}
	return at
}
