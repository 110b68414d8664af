package agent

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ration"
)

// TestRationed: a tenant that changes its objects all the time causes a burst of plans and then
// one a second, and what others change is told at once.
func TestRationed(t *testing.T) {
	var told atomic.Int32
	c := &cluster{changed: func() { told.Add(1) }}
	config := func(namespace string, i int) *v1alpha1.NetworkConfig {
		return &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1alpha1.NetworkConfigSpec{Pods: []string{fmt.Sprint(i)}}}
	}
	configs, maps := c.notify(&v1alpha1.NetworkConfig{}), c.notify(&v1alpha1.NamespaceMap{})
	began := time.Now()
	for i := range 1000 {
		configs.OnUpdate(config("tenant-hostile", i), config("tenant-hostile", i+1))
		maps.OnAdd(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant-hostile"}}, false)
		c.rations.Begin(time.Now())
	}
	most := int32(ration.Burst + time.Since(began)/ration.Every)
	if got := told.Load(); got < ration.Burst || got > most {
		t.Errorf("told %d times at once, want %d to %d", got, ration.Burst, most)
	}
	at := func(reason string, tell func()) {
		t.Helper()
		before := told.Load()
		if tell(); told.Load() == before {
			t.Errorf("%s is not told at once", reason)
		}
	}
	at("another tenant's", func() { configs.OnUpdate(config("tenant-quiet", 1), config("tenant-quiet", 2)) })
	at("a node", func() { c.notify(&corev1.Node{}).OnAdd(&corev1.Node{}, false) })
	at("what is gone unseen", func() { configs.OnDelete(toolscache.DeletedFinalStateUnknown{}) })
	rules := func(namespace string, i int) *v1alpha1.NetworkRules {
		return &v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1alpha1.NetworkRulesSpec{Shard: int32(i)}}
	}
	ruled := c.notify(&v1alpha1.NetworkRules{})
	at("what home itself has written for its pods", func() {
		ruled.OnUpdate(rules(v1alpha1.PeeringNamespacePrefix+"x", 1), rules(v1alpha1.PeeringNamespacePrefix+"x", 2))
	})
	soon := told.Load()
	for i := range 1000 {
		ruled.OnUpdate(rules("tenant-hostile", i), rules("tenant-hostile", i+1))
		c.rations.Begin(time.Now())
	}
	if got := told.Load(); got > soon+int32(1+time.Since(began)/ration.Every) {
		t.Errorf("the rules of a tenant are told %d times at once", got-soon)
	}
	before := told.Load()
	configs.OnUpdate(config("tenant-quiet", 2), config("tenant-quiet", 2))
	if told.Load() > before+1 { // that of the hostile one may come
		t.Error("what is as it was is told")
	}
	// What was held back comes.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); told.Load() < ration.Burst+4; {
		if time.Now().After(end) {
			t.Fatalf("told %d times after 10 s", told.Load())
		}
		<-tick.C
	}
}
