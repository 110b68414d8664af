package agent

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestExpel holds that a label makes nobody's pod a tenant's: not here, where the tenant's network
// would be open to it, nor at a provider, where it would be of the tenant's party.
func TestExpel(t *testing.T) {
	f := hopFacts()
	f.namespaces = []corev1.Namespace{{ObjectMeta: labelled("", "x", v1alpha1.LabelTenant, "turin", v1alpha1.LabelHomeNamespace, "shop")}}
	f.hosted = append(f.hosted, podAt(labelled("users", "here", v1alpha1.LabelTenant, "turin"), "b", "10.42.2.66"))
	there := podAt(labelled("users", "there", v1alpha1.LabelTenant, "turin"), "milan", "10.81.3.66")
	f.hosted, f.away["milan"] = append(f.hosted, there), append(f.away["milan"], there)
	f.given = append(f.given, sliceOf(labelled("users", "s", v1alpha1.LabelTenant, "turin"), "", "10.82.1.66"))
	f.expel()
	if there.Labels[v1alpha1.LabelTenant] != "turin" {
		t.Error("the cache's labels were changed")
	}
	for _, p := range input(f).input.Peerings {
		switch p.Key {
		case "tenant-turin":
			sameTexts(t, "what turin may reach", "10.42.2.7 10.81.3.9", p.Here)
			sameTexts(t, "what is reached of turin", "10.50.1.1", p.There)
		case "peering-milan":
			if len(p.Parties) != 1 {
				t.Fatalf("the parties are %v", p.Parties)
			}
			sameTexts(t, "turin's pods at milan", "10.42.3.9", p.Parties[0].There)
			sameTexts(t, "with whom they speak", "10.42.2.7", p.Parties[0].With)
			sameTexts(t, "what is reached at milan", "10.42.3.4 10.42.3.9 10.42.3.66", p.There)
		}
	}
}

// TestStrangersAreExpelled holds at a real API server that this is so of what is read.
func TestStrangersAreExpelled(t *testing.T) {
	server := kubetest.Server(t)
	api := server.Client(t)
	tenant, system := server.Name(t, "turin"), server.Namespace(t)
	mapped, users := server.Name(t, "shop"), server.Namespace(t)
	create := func(o client.Object) {
		t.Helper()
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: mapped, Labels: map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelHomeNamespace: "shop"}}})
	create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: mapped, Name: "default"}})
	for _, namespace := range []string{users, mapped} {
		create(&corev1.Pod{ObjectMeta: labelled(namespace, "web", v1alpha1.LabelTenant, tenant, v1alpha1.LabelHomeUID, "u"),
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	}
	c, changed := begun(t, server.Config, system)
	limit := time.After(30 * time.Second)
	for {
		known := map[string]bool{}
		for _, pod := range c.facts().hosted {
			known[pod.Namespace] = true
		}
		if known[users] {
			t.Fatal("a stranger's pod is taken for the tenant's")
		}
		if known[mapped] {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatal("the tenant's pod is not known")
		}
	}
}
