package torture

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// applied is the model after steps, one a line.
func applied(t *testing.T, text string) *Model {
	t.Helper()
	steps, err := ParseAll(text)
	if err != nil {
		t.Fatal(err)
	}
	m := NewModel()
	for _, s := range steps {
		m.Apply(s)
	}
	return m
}

func TestModel(t *testing.T) {
	m := applied(t, `
1s offload keep
2s deploy keep/web 2
3s stateful keep/db 1
4s job keep/job-1 5
5s scale keep/web 3
6s roll keep/web 9
7s mark keep/web 4
8s cut rome-milan 3s
9s rotate keep 11
10s delete keep/db
11s offload roam
12s unoffload roam
13s configure keep/settings 13
14s expose keep/to-web 8014
15s expose keep/to-db 8015
16s delete keep/to-db
17s configure roam/settings 17
18s delete roam/settings`)
	want := &Model{Places: map[string]*Place{
		Keep: {Offloaded: true, Since: 1e9, Login: 11, Settings: 13, Services: map[string]int{"to-web": 8014}, Apps: map[string]*App{"web": {Deploy, 3, 9}, "job-1": {Kind: Job}}},
		Roam: {Since: 12e9, Apps: map[string]*App{}, Services: map[string]int{}}, Stay: {Apps: map[string]*App{}, Services: map[string]int{}},
	}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("the model is another one:\n%s", diff)
	}
}

func TestUnsettled(t *testing.T) {
	const steps = "1s offload keep\n2s deploy keep/web 1\n3s job keep/job-1 5\n4s rotate keep 3\n5s configure keep/settings 6\n6s expose keep/to-web 8006"
	at := func(ip string) func(*Pod) { return func(p *Pod) { p.IP = ip } }
	good := func() seen {
		return seen{
			namespaces: []string{"keep-rome"},
			home:       []Pod{homePod("a", "web", at("10.254.0.7")), homePod("b", "job-1", counted, succeeded)},
			remote:     []Pod{remotePod("x", "a", "web", at("10.42.0.7")), remotePod("y", "b", "job-1", counted, succeeded)},
			jobs:       []JobState{{Namespace: Keep, Name: "job-1", Succeeded: 1, Complete: true}},
			secrets:    []Held{{"keep-rome", Login, []Canary{{Keep, Login, "3"}}}},
			configs:    []Held{{"keep-rome", Settings, []Canary{{Keep, Settings, "6"}}}},
			services:   []Service{{"keep-rome", "to-web", "web", Keep, 8006}},
			homeSlices: []Slice{{Keep, "to-web", Keep, 8006, false, []string{"10.254.0.7"}}},
			slices:     []Slice{{"keep-rome", "to-web", Keep, 8006, false, []string{"10.42.0.7"}}},
			shadows:    []Shadow{{Namespace: tenant, Name: "a", HomePlace: Keep}, {Namespace: tenant, Name: "b", HomePlace: Keep}},
		}
	}
	for _, c := range []struct {
		reason string
		more   string // steps
		change func(*seen)
		want   string
	}{
		{"all is well", "", func(*seen) {}, ""},
		{"what has ended may be gone at the provider", "", func(s *seen) { s.remote, s.shadows = s.remote[:1], s.shadows[:1] }, ""},
		{"a pod is missing", "", func(s *seen) { s.home, s.remote, s.shadows = s.home[1:], s.remote[1:], s.shadows[1:] }, "deploy keep/web has 0 good pods"},
		{"a pod too many", "", func(s *seen) { s.home = append(s.home, homePod("c", "web", atHome)) }, "has 2 good pods"},
		{"a pod is not ready", "", func(s *seen) { s.home[0].Ready = false }, "want it ready"},
		{"a pod is still leaving", "", func(s *seen) { s.home[0].Deleting = true }, "deleting true"},
		{"a pod of the template before", "5s roll keep/web 7", func(*seen) {}, "of tier 7"},
		{"a pod of something deleted", "5s delete keep/web", func(*seen) {}, "is of nothing"},
		{"the job is not complete", "", func(s *seen) { s.jobs[0].Complete = false }, "is not complete"},
		{"no namespace there", "", func(s *seen) { s.namespaces = nil }, "want true"},
		{"a namespace there after the unoffload", "5s unoffload keep", func(*seen) {}, "want false"},
		{"a Secret of yesterday", "5s rotate keep 4", func(*seen) {}, `has version "3", want "4"`},
		{"a Secret that nobody needs", "5s delete keep/web\n6s delete keep/job-1", func(s *seen) { s.home, s.remote, s.shadows = nil, nil, nil }, "no pod that refers"},
		{"a ConfigMap of yesterday", "7s configure keep/settings 7", func(*seen) {}, `settings at the provider has version "6", want "7"`},
		{"a ConfigMap that has not come", "", func(s *seen) { s.configs = nil }, `has version "", want "6"`},
		{"a ConfigMap that was deleted", "7s delete keep/settings", func(*seen) {}, `has version "6", want ""`},
		{"a ConfigMap that nobody needs", "7s delete keep/web\n8s delete keep/job-1", func(s *seen) { s.home, s.remote, s.shadows, s.secrets = nil, nil, nil, nil }, "ConfigMap keep-rome/settings is at the provider, and no pod"},
		{"a Service that has not come", "", func(s *seen) { s.services = nil }, "to-web is not at the provider with port 8006"},
		{"a Service of yesterday", "7s expose keep/to-web 8007", func(s *seen) { s.slices[0].Port, s.homeSlices[0].Port = 8007, 8007 }, "is not at the provider with port 8007"},
		{"a Service of another app", "", func(s *seen) { s.services[0].App = "db" }, "is not at the provider"},
		{"a Service that was deleted", "7s delete keep/to-web", func(*seen) {}, "keep-rome/to-web is at the provider, wanted at home: false"},
		{"a Service that nobody needs", "7s delete keep/web\n8s delete keep/job-1", func(s *seen) {
			s.home, s.remote, s.shadows, s.secrets, s.configs, s.slices, s.homeSlices = nil, nil, nil, nil, nil, nil, nil
		}, "without pods there: true"},
		{"a slice that names who is not ready", "", func(s *seen) { s.slices[0].Ready = []string{"10.42.0.7", "10.42.0.9"} }, "of its own pods, have [10.42.0.7 10.42.0.9], want [10.42.0.7]"},
		{"a slice at home without a pod at the provider", "", func(s *seen) { s.homeSlices[0].Ready = nil }, "keep/to-web at home have [], want [10.254.0.7]"},
		{"a slice of another port", "", func(s *seen) { s.slices[0].Port = 8005 }, "has port 8005, want 8006"},
		{"a pod at home that nobody told the provider of", "7s scale keep/web 2", func(s *seen) {
			s.home = append(s.home, homePod("c", "web", atHome, at("10.42.0.9")))
			s.homeSlices[0].Ready = []string{"10.254.0.7", "10.42.0.9"}
		}, "of pods at home, have [], want […9]"},
		{"a pod at home that the provider was told of", "7s scale keep/web 2", func(s *seen) {
			s.home = append(s.home, homePod("c", "web", atHome, at("10.42.0.9")))
			s.homeSlices[0].Ready = []string{"10.254.0.7", "10.42.0.9"}
			s.slices = append(s.slices, Slice{"keep-rome", "to-web", Keep, 8006, true, []string{"10.254.0.9"}})
		}, ""},
		{"one of yesterday that the provider was told of", "", func(s *seen) {
			s.slices = append(s.slices, Slice{"keep-rome", "to-web", Keep, 8006, true, []string{"10.254.0.9"}})
		}, "of pods at home, have […9], want []"},
		{"a pod without one at home", "", func(s *seen) { s.remote = append(s.remote, remotePod("z", "c", "web")) }, "has no home pod"},
		{"a shadow pod without one at home", "", func(s *seen) { s.shadows = append(s.shadows, Shadow{Name: "c"}) }, "ShadowPod c"},
		{"a home pod without a shadow pod", "", func(s *seen) { s.shadows = s.shadows[1:] }, "has no ShadowPod"},
		{"a home pod without a pod", "", func(s *seen) { s.remote = s.remote[1:] }, "has no pod at the provider"},
		{"a label that did not follow", "", func(s *seen) { s.home[0].Mark = "5" }, `mark "5"; at the provider`},
		{"what was made last is at home, against the strategy", "5s deploy keep/last 1", func(s *seen) { s.home = append(s.home, homePod("c", Last, atHome)) }, "made after the storm"},
	} {
		s := good()
		c.change(&s)
		got := strings.Join(applied(t, steps+"\n"+c.more).Unsettled(s.world()), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestLeft(t *testing.T) {
	if left := Left(seen{namespaces: []string{"default"}}.world()); len(left) > 0 {
		t.Errorf("nothing is left, and it says %s", left)
	}
	w := seen{namespaces: []string{"roam-rome"}, home: []Pod{homePod("a", "web")}, remote: []Pod{remotePod("x", "a", "web")},
		secrets: []Held{{"keep-rome", Login, nil}}, configs: []Held{{"keep-rome", Settings, nil}}, services: []Service{{Name: "to-web"}},
		slices: []Slice{{Service: "to-web"}}, homeSlices: []Slice{{Service: "to-web"}}, shadows: []Shadow{{Kind: "Secret"}}}.world()
	if left := Left(w); len(left) != 9 {
		t.Errorf("nine things are left, and it says %s", left)
	}
}

// TestSet holds what is read of objects, and that what has nothing to do with a storm is not.
func TestSet(t *testing.T) {
	w := NewWorld()
	meta := func(uid, namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{UID: types.UID(uid), Namespace: namespace, Name: name, Labels: labels}
	}
	pod := &corev1.Pod{
		ObjectMeta: meta("x", "keep-rome", "db-0", map[string]string{LabelPlace: Keep, LabelApp: "db", LabelTier: "2", LabelMark: "5",
			v1alpha1.LabelHomeUID: "a", "statefulset.kubernetes.io/pod-name": "db-0"}),
		Spec: corev1.PodSpec{NodeName: "milan-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	}
	w.Remote.Set(pod, false)
	want := Pod{UID: "x", Namespace: "keep-rome", Name: "db-0", Place: Keep, App: "db", Tier: "2", Mark: "5", Node: "milan-1", Phase: "Running", HomeUID: "a", Ready: true, Live: true, Unique: true}
	if diff := cmp.Diff(want, w.Remote.Pods["x"]); diff != "" {
		t.Errorf("a pod is read as:\n%s", diff)
	}
	for reason, lost := range map[string]bool{"DeletionByTaintManager": true, "DeletionByPodGC": true, "EvictionByEvictionAPI": false} {
		w.Home.Set(&corev1.Pod{ObjectMeta: meta(reason, Keep, "web", map[string]string{LabelPlace: Keep}),
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}}}, false)
		if w.Home.Pods[reason].Evicted != lost {
			t.Errorf("a pod with %s is read as that of a lost node: %t", reason, !lost)
		}
	}
	w.Remote.Set(&corev1.Pod{ObjectMeta: meta("y", "kube-system", "coredns", nil)}, false)
	w.Remote.Set(&corev1.Secret{ObjectMeta: meta("z", "kube-system", "token", nil), Data: map[string][]byte{"a": []byte("b")}}, false)
	w.Home.Set(&batchv1.Job{ObjectMeta: meta("j", "default", "job", nil)}, false)
	if len(w.Remote.Pods) != 1 || len(w.Remote.Secrets) != 0 || len(w.Home.Jobs) != 0 {
		t.Errorf("strangers are part of the world: %+v", w)
	}
	w.Home.Set(&batchv1.Job{ObjectMeta: meta("j", Keep, "job-1", nil), Status: batchv1.JobStatus{Succeeded: 1,
		Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}}, false)
	if got, want := w.Home.Jobs["j"], (JobState{Namespace: Keep, Name: "job-1", Succeeded: 1, Complete: true}); got != want {
		t.Errorf("a job is read as %+v, want %+v", got, want)
	}
	value := Canary{Roam, Denied, "12"}
	w.Remote.Set(&corev1.Secret{ObjectMeta: meta("s", "default", "stolen", nil), Data: map[string][]byte{"a": []byte("x " + value.String() + " y")}}, false)
	if got := w.Remote.Secrets["s"]; len(got.Canaries) != 1 || got.Canaries[0] != value {
		t.Errorf("in a Secret was found %+v, want %+v", got, value)
	}
	settings := Canary{Roam, Settings, "13"}
	w.Remote.Set(&corev1.ConfigMap{ObjectMeta: meta("c", "default", "stolen", nil), Data: map[string]string{"a": settings.String()}}, false)
	if got := w.Remote.Configs["c"]; len(got.Canaries) != 1 || got.Canaries[0] != settings {
		t.Errorf("in a ConfigMap was found %+v, want %+v", got, settings)
	}
	w.Remote.Set(&corev1.Service{ObjectMeta: meta("k", "default", "kubernetes", nil)}, false)
	w.Remote.Set(&corev1.Service{ObjectMeta: meta("v", "keep-rome", "to-web", map[string]string{LabelPlace: Keep, v1alpha1.LabelHomeNamespace: Roam}), Spec: corev1.ServiceSpec{Selector: map[string]string{LabelApp: "web"}, Ports: []corev1.ServicePort{{Port: 8001}}}}, false)
	if diff := cmp.Diff(map[string]Service{"v": {"keep-rome", "to-web", "web", Keep, 8001}}, w.Remote.Services); diff != "" {
		t.Errorf("Services are read as:\n%s", diff)
	}
	yes, no, port := true, false, int32(8001)
	w.Remote.Set(&discoveryv1.EndpointSlice{ObjectMeta: meta("e", "keep-rome", "to-web-x", map[string]string{discoveryv1.LabelServiceName: "to-web", discoveryv1.LabelManagedBy: "pelago.dev", v1alpha1.LabelHomeNamespace: Keep}),
		Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.254.0.9"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes}},
			{Addresses: []string{"10.254.0.8"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}}}}, false)
	if diff := cmp.Diff(map[string]Slice{"e": {"keep-rome", "to-web", Keep, 8001, true, []string{"10.254.0.9"}}}, w.Remote.Slices); diff != "" {
		t.Errorf("slices are read as:\n%s", diff)
	}
	w.Remote.Set(pod, true)
	if len(w.Remote.Pods) != 0 {
		t.Error("a pod that is gone is still part of the world")
	}
}
