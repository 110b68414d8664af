package tenant

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func running(namespace, name, uid, cpu string) *corev1.Pod {
	p := pod(containers(container("a", list("cpu", cpu), nil)))
	p.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
	return p
}

func ended(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	p.Status.Phase = phase
	return p
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		do           func(*Usage)
		want         v1alpha1.ResourceList
	}{
		{"nobody's", "pods elsewhere are not the tenant's", func(u *Usage) { u.SetPod(running("x", "a", "1", "1")) }, nil},
		{"one", "a pod counts", func(u *Usage) { u.SetNamespace("x", "rome"); u.SetPod(running("x", "a", "1", "1")) }, amounts("cpu", "1", "pods", "1")},
		{"twice", "a pod counts once", func(u *Usage) {
			u.SetNamespace("x", "rome")
			u.SetPod(running("x", "a", "1", "1"))
			u.SetPod(running("x", "a", "1", "2"))
		}, amounts("cpu", "2", "pods", "1")},
		{"two namespaces", "all namespaces of a tenant count", func(u *Usage) {
			u.SetNamespace("x", "rome")
			u.SetNamespace("y", "rome")
			u.SetPod(running("x", "a", "1", "1"))
			u.SetPod(running("y", "a", "2", "2"))
		}, amounts("cpu", "3", "pods", "2")},
		{"succeeded", "what has ended holds nothing", func(u *Usage) {
			u.SetNamespace("x", "rome")
			u.SetPod(running("x", "a", "1", "1"))
			u.SetPod(ended(running("x", "a", "1", "1"), corev1.PodSucceeded))
		}, nil},
		{"failed from the start", "what has ended holds nothing", func(u *Usage) {
			u.SetNamespace("x", "rome")
			u.SetPod(ended(running("x", "a", "1", "1"), corev1.PodFailed))
		}, nil},
		{"deleted", "what is gone holds nothing", func(u *Usage) {
			u.SetNamespace("x", "rome")
			u.SetPod(running("x", "a", "1", "1"))
			u.DeletePod(running("x", "a", "1", "1"))
			u.DeletePod(running("x", "a", "1", "1"))
		}, nil},
		{"late delete", "the end of a pod is not that of the next of its name", func(u *Usage) {
			u.SetNamespace("x", "rome")
			u.SetPod(running("x", "web-0", "2", "1"))
			u.DeletePod(running("x", "web-0", "1", "1"))
		}, amounts("cpu", "1", "pods", "1")},
		{"moved", "a namespace may change hands", func(u *Usage) {
			u.SetNamespace("x", "oslo")
			u.SetPod(running("x", "a", "1", "1"))
			u.podsOf(func(string) ([]*corev1.Pod, error) { return []*corev1.Pod{running("x", "a", "1", "1")}, nil })
			u.SetNamespace("x", "rome")
		}, amounts("cpu", "1", "pods", "1")},
		{"let go", "a namespace may stop to be a tenant's", func(u *Usage) {
			u.SetNamespace("x", "rome")
			u.SetPod(running("x", "a", "1", "1"))
			u.SetNamespace("x", "")
		}, nil},
		{"pods first", "pods that were there before their namespace count", func(u *Usage) {
			u.podsOf(func(string) ([]*corev1.Pod, error) { return []*corev1.Pod{running("x", "a", "1", "1")}, nil })
			u.SetNamespace("x", "rome")
		}, amounts("cpu", "1", "pods", "1")},
		{"handlers", "events of informers, the missed end too", func(u *Usage) {
			namespaceHandler(u).OnAdd(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", Labels: map[string]string{v1alpha1.LabelTenant: "rome"}}}, true)
			podHandler(u).OnAdd(running("x", "a", "1", "1"), true)
			podHandler(u).OnAdd(running("x", "b", "2", "1"), true)
			podHandler(u).OnUpdate(nil, running("x", "a", "1", "4"))
			podHandler(u).OnDelete(toolscache.DeletedFinalStateUnknown{Obj: running("x", "b", "2", "1")})
		}, amounts("cpu", "4", "pods", "1")},
	} {
		u := NewUsage()
		c.do(u)
		if got, _ := u.Used("rome"); !sameList(got, c.want) {
			t.Errorf("%s: %v, want %v: %s", c.name, got, c.want, c.reason)
		}
	}
}

func TestUsageTells(t *testing.T) {
	u := NewUsage()
	told := map[string]int{}
	u.notify(func(tenant string) { told[tenant]++ })
	u.SetNamespace("x", "rome")
	clear(told)
	u.SetPod(running("x", "a", "1", "1"))
	u.SetPod(running("x", "a", "1", "1"))
	u.SetPod(running("elsewhere", "a", "1", "1"))
	if told["rome"] != 1 || len(told) != 1 {
		t.Errorf("told %v, want rome once: only a difference is worth a look", told)
	}
	u.SetNamespace("x", "oslo")
	if told["rome"] != 2 || told["oslo"] != 1 {
		t.Errorf("told %v: both tenants of a namespace that changes hands", told)
	}
	if _, complete := u.Used("rome"); complete {
		t.Error("not everything has been counted yet")
	}
	u.Complete()
	if _, complete := u.Used("oslo"); !complete || told["oslo"] != 2 {
		t.Errorf("told %v once everything is counted", told)
	}
}

// TestUsageEqualsSum plays random events and compares with a sum over what there is.
func TestUsageEqualsSum(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		u := NewUsage()
		pods, spaces := map[string]*corev1.Pod{}, map[string]string{}
		u.podsOf(func(namespace string) ([]*corev1.Pod, error) {
			var found []*corev1.Pod
			for _, p := range pods {
				if p.Namespace == namespace {
					found = append(found, p)
				}
			}
			return found, nil
		})
		for i := range 300 {
			namespace := fmt.Sprint("n", r.IntN(4))
			key := namespace + "/" + fmt.Sprint("p", r.IntN(5))
			switch r.IntN(6) {
			case 0:
				tenant := []string{"", "rome", "oslo"}[r.IntN(3)]
				spaces[namespace] = tenant
				u.SetNamespace(namespace, tenant)
			case 1:
				if p := pods[key]; p != nil {
					delete(pods, key)
					u.DeletePod(p)
				}
			default:
				p := randomPod(r)
				p.Namespace, p.Name, p.UID = namespace, key[3:], types.UID(fmt.Sprint(i))
				p.Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodFailed, ""}[r.IntN(4)]
				pods[key] = p
				u.SetPod(p)
			}
			for _, tenant := range []string{"rome", "oslo"} {
				want := corev1.ResourceList{}
				for _, p := range pods {
					if spaces[p.Namespace] != tenant || p.Status.Phase == corev1.PodFailed {
						continue
					}
					for name, q := range Requests(p) {
						sum := want[name]
						sum.Add(q)
						store(want, name, sum)
					}
				}
				got, _ := u.Used(tenant)
				same := v1alpha1.ResourceList{}
				for name, q := range want {
					same[string(name)] = q
				}
				if !sameList(got, same) {
					t.Fatalf("seed %d, step %d: %s uses %v, want %v", seed, i, tenant, got, same)
				}
			}
		}
	}
}

// Whether a very pod is counted, so that nobody counts it beside.
func TestUsageCounts(t *testing.T) {
	u := NewUsage()
	u.SetNamespace("x", "rome")
	u.SetPod(running("x", "a", "1", "1"))
	for _, c := range []struct {
		reason string
		pod    *corev1.Pod
		want   bool
	}{
		{"it was seen", running("x", "a", "1", "1"), true},
		{"another one had its name", running("x", "a", "2", "1"), false},
		{"it was not seen yet", running("x", "b", "3", "1"), false},
		{"it is nobody's", running("y", "a", "1", "1"), false},
	} {
		if got := u.Counts(c.pod); got != c.want {
			t.Errorf("%s: %v", c.reason, got)
		}
	}
}
