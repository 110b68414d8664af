package tenant

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// list makes a resource list of pairs: name, quantity.
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func amounts(pairs ...string) v1alpha1.ResourceList {
	l := v1alpha1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[pairs[i]] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(c corev1.Container) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{}
	for _, f := range change {
		f(p)
	}
	return p
}

func containers(c ...corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers = c }
}

func inits(c ...corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.InitContainers = c }
}

func whole(requests, limits corev1.ResourceList) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

func TestRequests(t *testing.T) {
	resized := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "a", AllocatedResources: list("cpu", "3"),
			Resources: &corev1.ResourceRequirements{Requests: list("cpu", "3")},
		}}
	}
	for _, c := range []struct {
		name, reason string
		pod          *corev1.Pod
		want         corev1.ResourceList
	}{
		{"containers", "containers run together", pod(containers(container("a", list("cpu", "1"), nil), container("b", list("cpu", "500m", "memory", "1Gi"), nil))),
			list("cpu", "1500m", "memory", "1Gi", "pods", "1")},
		{"init", "init containers run before, alone", pod(inits(container("i", list("cpu", "2"), nil)), containers(container("a", list("cpu", "1"), nil))),
			list("cpu", "2", "pods", "1")},
		{"sidecar", "side cars stay", pod(inits(sidecar(container("s", list("cpu", "1"), nil)), container("i", list("cpu", "2"), nil)), containers(container("a", list("cpu", "1"), nil))),
			list("cpu", "3", "pods", "1")},
		{"overhead", "the runtime class costs too", pod(containers(container("a", list("cpu", "1"), nil)), func(p *corev1.Pod) { p.Spec.Overhead = list("cpu", "100m") }),
			list("cpu", "1100m", "pods", "1")},
		{"pod level", "requests of the pod stand for its containers'", pod(whole(list("cpu", "4"), nil), containers(container("a", list("cpu", "1", "memory", "1Gi"), nil))),
			list("cpu", "4", "memory", "1Gi", "pods", "1")},
		{"resize", "what it still holds counts until it has been given back", pod(containers(container("a", list("cpu", "1"), nil)), resized),
			list("cpu", "3", "pods", "1")},
		{"nothing", "a pod is a pod", pod(), list("pods", "1")},
	} {
		if got := Requests(c.pod); !sameList(got, c.want) {
			t.Errorf("%s: %v, want %v: %s", c.name, got, c.want, c.reason)
		}
	}
}

func TestCheck(t *testing.T) {
	two := amounts("cpu", "2", "memory", "2Gi", "pods", "3")
	both := list("cpu", "1", "memory", "1Gi")
	good := pod(containers(container("a", both, both)))
	for _, c := range []struct {
		name, reason string
		enforcement  v1alpha1.Enforcement
		limits, used v1alpha1.ResourceList
		pod          *corev1.Pod
		want         []string // parts of the error; none if allowed
	}{
		{"fits", "there is room", "None", two, amounts("cpu", "1", "memory", "1Gi"), good, nil},
		{"exact", "a limit may be reached", "None", two, amounts("cpu", "1"), good, nil},
		{"too much", "a limit may not be passed", "None", two, amounts("cpu", "1001m"), good, []string{"1 of cpu", "1001m", "limit of 2", "request less"}},
		{"pods", "pods are counted", "None", two, amounts("pods", "3"), pod(), []string{"1 of pods", "limit of 3"}},
		{"undeclared", "None demands nothing", "None", two, nil, pod(containers(container("a", nil, nil))), nil},
		{"over already", "what a pod does not ask for cannot stop it", "None", two, amounts("cpu", "9"), pod(containers(container("a", list("memory", "1Gi"), nil))), nil},
		{"unlimited resource", "only limited resources count", "Hard", amounts("pods", "3"), nil, pod(containers(container("a", nil, nil))), nil},
		{"soft undeclared", "Soft demands requests", "Soft", two, nil, pod(containers(container("ok", both, nil), container("bad", list("cpu", "1"), nil))),
			[]string{`spec.containers[1] "bad"`, "resources.requests.memory", "set it above zero"}},
		{"soft zero", "zero says nothing", "Soft", two, nil, pod(containers(container("a", list("cpu", "0", "memory", "1"), nil))), []string{"requests.cpu"}},
		{"soft init", "init containers use resources too", "Soft", two, nil, pod(inits(container("i", nil, nil)), containers(container("a", both, nil))),
			[]string{`spec.initContainers[0] "i"`}},
		{"soft by limit", "the API server makes requests of limits", "Soft", two, nil, pod(containers(container("a", nil, both))), nil},
		{"sum by limit", "and they count", "None", two, amounts("cpu", "1500m"), pod(containers(container("a", nil, both))), []string{"of cpu"}},
		{"soft pod level", "the pod's request bounds its containers", "Soft", two, nil, pod(whole(both, nil), containers(container("a", nil, nil))), nil},
		{"soft gpu", "nobody uses a device without asking", "Soft", amounts("example.com/gpu", "1"), nil, pod(containers(container("a", nil, nil))), nil},
		{"hard", "limits equal requests", "Hard", two, nil, good, nil},
		{"hard no limit", "Hard demands limits", "Hard", two, nil, pod(containers(container("a", both, nil))), []string{"limits.cpu is 0", "Hard", "set both to one value"}},
		{"hard unequal", "Hard demands equal limits", "Hard", two, nil, pod(containers(container("a", both, list("cpu", "2", "memory", "1Gi")))), []string{"limits.cpu is 2"}},
		{"hard pod level", "limits of the pod do", "Hard", two, nil, pod(whole(both, both), containers(container("a", nil, nil))), nil},
		{"hard pod level by limit", "the API server makes requests of limits", "Hard", two, nil, pod(whole(nil, both), containers(container("a", nil, nil))), nil},
		{"hard pod level unequal", "limits of the pod must equal its requests", "Hard", two, nil, pod(whole(both, list("cpu", "3", "memory", "1Gi")), containers(container("a", nil, nil))), []string{"spec.resources: limits.cpu is 3"}},
		{"sidecar sum", "the scheduler's sum is checked", "None", two, nil,
			pod(inits(sidecar(container("s", list("cpu", "1500m"), nil))), containers(container("a", list("cpu", "1"), nil))), []string{"2500m of cpu"}},
	} {
		err := Check(&v1alpha1.TenantLimits{Enforcement: c.enforcement, Resources: c.limits}, c.used, c.pod)
		if (err != nil) != (len(c.want) > 0) {
			t.Errorf("%s: %v: %s", c.name, err, c.reason)
			continue
		}
		for _, part := range c.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q lacks %q", c.name, err, part)
			}
		}
	}
	if err := Check(nil, nil, pod()); err != nil {
		t.Errorf("no limits allow everything: %v", err)
	}
}

func TestCheckLeavesItsInputAlone(t *testing.T) {
	p := pod(containers(container("a", nil, list("cpu", "1"))))
	used, limits := amounts("cpu", "1"), amounts("cpu", "5")
	if err := Check(&v1alpha1.TenantLimits{Resources: limits}, used, p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.Containers[0].Resources.Requests != nil || !sameList(used, amounts("cpu", "1")) || !sameList(limits, amounts("cpu", "5")) {
		t.Error("the pod, the sum or the limits have changed")
	}
}

// randomPod is a pod with anything in it that bears on requests.
func randomPod(r *rand.Rand) *corev1.Pod {
	names := []string{"cpu", "memory", "ephemeral-storage", "example.com/gpu"}
	some := func() corev1.ResourceList {
		l := corev1.ResourceList{}
		for _, n := range names {
			if r.IntN(2) == 0 {
				l[corev1.ResourceName(n)] = *resource.NewMilliQuantity(r.Int64N(5000), resource.DecimalSI)
			}
		}
		return l
	}
	p := pod()
	for i := range r.IntN(4) {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprint("c", i), some(), nil))
	}
	for i := range r.IntN(4) {
		c := container(fmt.Sprint("i", i), some(), nil)
		if r.IntN(2) == 0 {
			c = sidecar(c)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if r.IntN(3) == 0 {
		p.Spec.Overhead = some()
	}
	if r.IntN(3) == 0 {
		whole(some(), nil)(p)
	}
	return p
}

// bruteForce is the most that a pod holds at any moment of its life: it plays the
// start of the pod, container by container.
func bruteForce(p *corev1.Pod, name corev1.ResourceName) int64 {
	of := func(c corev1.Container) int64 { q := c.Resources.Requests[name]; return q.MilliValue() }
	var most, standing int64
	for _, c := range p.Spec.InitContainers {
		most = max(most, standing+of(c))
		if c.RestartPolicy != nil {
			standing += of(c)
		}
	}
	for _, c := range p.Spec.Containers {
		standing += of(c)
	}
	most = max(most, standing)
	if p.Spec.Resources != nil && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
		if q, ok := p.Spec.Resources.Requests[name]; ok {
			most = q.MilliValue()
		}
	}
	overhead := p.Spec.Overhead[name]
	return most + overhead.MilliValue()
}

func FuzzRequests(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := randomPod(rand.New(rand.NewPCG(seed, 1)))
		got := Requests(p)
		for _, name := range []corev1.ResourceName{"cpu", "memory", "ephemeral-storage", "example.com/gpu"} {
			if q := got[name]; q.MilliValue() != bruteForce(p, name) {
				t.Errorf("seed %d: %s is %s, want %dm", seed, name, q.String(), bruteForce(p, name))
			}
		}
	})
}
