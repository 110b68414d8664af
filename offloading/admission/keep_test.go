package admission

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var (
	toleratesEverything = corev1.Toleration{Operator: corev1.TolerationOpExists}
	toleratesNoExecute  = corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	toleratesNoSchedule = corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	toleratesOurs       = corev1.Toleration{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}
	toleratesOursOnce   = corev1.Toleration{Key: v1alpha1.TaintVirtualNode, Effect: corev1.TaintEffectNoSchedule}
	toleratesAnother    = corev1.Toleration{Key: "example.com/gpu", Operator: corev1.TolerationOpExists}
)

func tolerating(pod *corev1.Pod, all ...corev1.Toleration) *corev1.Pod {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, all...)
	return pod
}

// TestKeepHome: which pods of other namespaces get the demand, and that with it they fit
// nowhere but where they did at home.
func TestKeepHome(t *testing.T) {
	notRemote := term(notVirtual)
	ssd, nvme := in("disk", "ssd"), in("disk", "nvme")
	virtual := in(v1alpha1.LabelType, v1alpha1.TypeVirtualNode)
	daemon, static := tolerating(newPod(), toleratesEverything), tolerating(newPod(), toleratesEverything)
	daemon.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: ptr.To(true)}}
	static.Spec.NodeName = "worker"
	byName := tolerating(newPod(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{in(metav1.ObjectNameField, "worker")}}), toleratesEverything)
	for _, c := range []struct {
		reason string
		pod    *corev1.Pod
		want   []corev1.NodeSelectorTerm
		worker bool
	}{
		{"it tolerates everything", tolerating(newPod(), toleratesEverything), []corev1.NodeSelectorTerm{notRemote}, true},
		{"it tolerates all that evicts", tolerating(newPod(), toleratesNoExecute), []corev1.NodeSelectorTerm{notRemote}, true},
		{"it tolerates our taint", tolerating(newPod(), toleratesOurs), []corev1.NodeSelectorTerm{notRemote}, true},
		{"our taint keeps it off", newPod(), nil, true},
		{"what it tolerates does not cover our taint", tolerating(newPod(), toleratesNoSchedule, toleratesOursOnce, toleratesAnother), nil, true},
		{"each of its terms gets it", tolerating(newPod(term(ssd), term(nvme)), toleratesEverything), []corev1.NodeSelectorTerm{term(ssd, notVirtual), term(nvme, notVirtual)}, true},
		{"a term of fields too", byName, []corev1.NodeSelectorTerm{{MatchExpressions: notRemote.MatchExpressions, MatchFields: byName.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields}}, true},
		{"it has it", tolerating(newPod(term(notVirtual, ssd)), toleratesEverything), []corev1.NodeSelectorTerm{term(notVirtual, ssd)}, true},
		{"a term that matches nothing does not begin to", tolerating(newPod(corev1.NodeSelectorTerm{}), toleratesEverything), []corev1.NodeSelectorTerm{{}}, false},
		{"one that matches nothing beside another", tolerating(newPod(corev1.NodeSelectorTerm{}, term(nvme)), toleratesEverything), []corev1.NodeSelectorTerm{term(nvme, notVirtual)}, false},
		{"one alternative is elsewhere", tolerating(newPod(term(virtual), term(ssd)), toleratesEverything), []corev1.NodeSelectorTerm{term(ssd, notVirtual)}, true},
		{"of a DaemonSet", daemon, nil, true},
		{"with a node", static, nil, true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			pod := apply(c.pod, keepHome(c.pod))
			var got []corev1.NodeSelectorTerm
			if own := required(pod); own != nil {
				got = own.NodeSelectorTerms
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if again := keepHome(pod); again.required != nil {
				t.Errorf("asked again it changes the pod again: %+v", again.required)
			}
			if ofDaemonSet(pod) || pod.Spec.NodeName != "" {
				return
			}
			if fits(t, pod, remoteNode("milan")) {
				t.Error("it fits a virtual node")
			}
			if fits(t, pod, realNode("worker")) != c.worker {
				t.Errorf("at home it fits: %t", !c.worker)
			}
		})
	}
}

// TestVirtualOnly: the binding of pods that can run on virtual nodes only is refused, with
// the way out; they are bound once they have gone it.
func TestVirtualOnly(t *testing.T) {
	virtual := in(v1alpha1.LabelType, v1alpha1.TypeVirtualNode)
	for reason, pod := range map[string]*corev1.Pod{
		"by its RuntimeClass":                     withClass(newPod()),
		"by its only term":                        tolerating(newPod(term(virtual, in("region", "it"))), toleratesEverything),
		"by the only one of its terms that means": tolerating(newPod(corev1.NodeSelectorTerm{}, term(virtual)), toleratesOurs),
	} {
		if diff := cmp.Diff(terms{outcome: outcomeIgnored}, keepHome(pod), cmp.AllowUnexported(terms{})); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
}

// TestKeepAnswers: nothing is read, and nothing refused.
func TestKeepAnswers(t *testing.T) {
	tolerant := `{"spec":{"tolerations":[{"operator":"Exists"}],"affinity":{"nodeAffinity":{"future":1}}}}`
	for reason, c := range map[string]struct {
		body    string
		patched bool
	}{
		"a pod that tolerates everything": {reviewOf("nowhere", tolerant), true},
		"a plain one":                     {reviewOf("nowhere", smallPod), false},
		"what is no pod":                  {reviewOf("nowhere", `{"spec":{"tolerations":7}}`), false},
		"a Service":                       {strings.Replace(reviewOf("nowhere", tolerant), `"resource":"pods"`, `"resource":"services"`, 1), false},
		"a pod that is changed":           {strings.Replace(reviewOf("nowhere", tolerant), "CREATE", "UPDATE", 1), false},
	} {
		h, _ := handlerOf(t, &shelf{err: http.ErrServerClosed})
		got := answerOf(t, postAt(h, KeepHomePath, c.body))
		if !got.Allowed || (len(got.Patch) > 0) != c.patched {
			t.Errorf("%s: allowed %t, patched with %s", reason, got.Allowed, got.Patch)
		}
		if !c.patched {
			continue
		}
		patched := applyPatch(t, tolerant, got.Patch)
		if again := answerOf(t, postAt(h, KeepHomePath, reviewOf("nowhere", string(patched)))); len(again.Patch) > 0 || countFuture(patched) != 1 {
			t.Errorf("%s: %s is patched again with %s", reason, patched, again.Patch)
		}
	}
}

// FuzzKeepHome: whatever a pod says, it is let through, and asking again changes nothing.
func FuzzKeepHome(f *testing.F) {
	f.Add(`{"spec":{"tolerations":[{"operator":"Exists"}]}}`)
	f.Add(`{"spec":{"tolerations":[{"key":"pelago.dev/virtual-node","operator":"Exists"}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{},{"matchExpressions":[{"key":"pelago.dev/type","operator":"In","values":["virtual-node"]}]},{"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}]}}}}}`)
	f.Add(`{"metadata":{"ownerReferences":[{"kind":"DaemonSet","controller":true}]},"spec":{"tolerations":[{"effect":"NoExecute"}],"nodeName":"n"}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		pod, ok := normal([]byte(raw))
		if !ok {
			return
		}
		h, _ := handlerOf(t, &shelf{err: http.ErrServerClosed})
		first := answerOf(t, postAt(h, KeepHomePath, reviewOf("nowhere", pod)))
		if !first.Allowed {
			t.Fatalf("refused: %+v", first.Result)
		}
		if len(first.Patch) == 0 {
			return
		}
		patched := applyPatch(t, pod, first.Patch)
		if again := answerOf(t, postAt(h, KeepHomePath, reviewOf("nowhere", string(patched)))); !again.Allowed || len(again.Patch) > 0 {
			t.Fatalf("asked again it patches again: %s\nthen %s", first.Patch, again.Patch)
		}
	})
}

// kept says whether a pod has the demand in each of its terms.
func kept(pod *corev1.Pod) bool {
	own := required(pod)
	return own != nil && len(own.NodeSelectorTerms) > 0 &&
		!slices.ContainsFunc(own.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool { return !has(t.MatchExpressions, notVirtual) })
}

// TestKeptHome goes the whole way in namespaces that are not offloaded: only pods that
// tolerate our taint reach us, and without us all are made as they are, soon.
func TestKeptHome(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	test := server.Name(t, "keep")
	plain, labelled, offloaded := server.Namespace(t), server.Namespace(t), server.Namespace(t)
	hooks := serve(t, c, plain, test)
	label(t, c, plain, map[string]string{testLabel: test})
	label(t, c, labelled, map[string]string{testLabel: test, v1alpha1.LabelOffload: "true"})
	label(t, c, offloaded, map[string]string{testLabel: test, v1alpha1.LabelOffloaded: "true"})
	tolerant := func(namespace, name string, all ...corev1.Toleration) *corev1.Pod {
		return tolerating(simplePod(namespace, name), all...)
	}
	eventually(t, "the API server asks", func() bool {
		pod := tolerant(plain, "try", toleratesEverything)
		if err := c.Create(t.Context(), pod, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return kept(pod)
	})

	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "typha", UID: "u"}}
	replica := tolerant(plain, "typha-1", toleratesEverything)
	replica.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	withTerms := tolerant(plain, "terms", toleratesNoExecute)
	withTerms.Spec.Affinity = newPod(term(in("a", "b")), term(in("c", "d"))).Spec.Affinity
	daemon, bound, mirror := tolerant(plain, "daemon", toleratesEverything), tolerant(plain, "bound", toleratesEverything), tolerant(plain, "mirror", toleratesEverything)
	daemon.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", UID: "d", Controller: ptr.To(true)}}
	bound.Spec.NodeName, mirror.Spec.NodeName = "worker", "worker"
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
	for _, one := range []struct {
		pod  *corev1.Pod
		asks bool
	}{
		{tolerant(plain, "everything", toleratesEverything), true}, {tolerant(plain, "ours", toleratesOurs), true}, {replica, true}, {withTerms, true},
		{simplePod(plain, "plain"), false}, {tolerant(plain, "another", toleratesAnother), false}, {tolerant(plain, "once", toleratesNoSchedule, toleratesOursOnce), false},
		{daemon, false}, {bound, false}, {mirror, false},
		{tolerant(labelled, "labelled", toleratesEverything), false}, {tolerant(offloaded, "offloaded", toleratesEverything), false},
	} {
		before := hooks.kept.Load()
		if err := c.Create(t.Context(), one.pod); err != nil {
			t.Errorf("%s: %v", one.pod.Name, err)
			continue
		}
		// Reinvocation may ask twice.
		if asked := hooks.kept.Load() > before; asked != one.asks {
			t.Errorf("%s: asked %t", one.pod.Name, asked)
		}
		if one.pod.Namespace == plain && kept(one.pod) != one.asks {
			t.Errorf("%s: %+v", one.pod.Name, one.pod.Spec.Affinity)
		}
	}
	if !fits(t, replica, realNode("worker")) || fits(t, replica, remoteNode("milan")) {
		t.Errorf("the pod of the Deployment: %+v", replica.Spec.Affinity)
	}

	hooks.stop()
	unchanged := func(when, name string) {
		t.Helper()
		begun, pod := time.Now(), tolerant(plain, name, toleratesEverything)
		if err := c.Create(t.Context(), pod); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		// The webhook has two seconds; the rest is for the API server of a busy machine.
		if took := time.Since(begun); took > time.Minute || pod.Spec.Affinity != nil {
			t.Errorf("%s: made after %s with %+v", when, took, pod.Spec.Affinity)
		}
	}
	unchanged("nobody listens", "away")
	silent, asked := speechless(t)
	before := hooks.config.DeepCopy()
	for i, charted := range chartWebhook(t, test, test).Webhooks {
		w := &hooks.config.Webhooks[i]
		w.TimeoutSeconds = charted.TimeoutSeconds
		w.ClientConfig.URL = ptr.To("https://" + silent + KeepHomePath)
		if strings.HasPrefix(w.Name, "keep-") && (*w.FailurePolicy != admissionregistrationv1.Ignore || *w.TimeoutSeconds > 2) {
			t.Errorf("an outage holds up others: %s, %d s", *w.FailurePolicy, *w.TimeoutSeconds)
		}
	}
	if err := c.Patch(t.Context(), hooks.config, client.StrategicMergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server asks there", func() bool {
		if err := c.Create(t.Context(), tolerant(plain, "try", toleratesEverything), client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return asked.Load() > 0
	})
	unchanged("nobody answers", "silent")
}

// speechless is a server that takes connections, which it counts, and says nothing.
func speechless(t *testing.T) (address string, asked *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	asked = &atomic.Int64{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			defer func() { _ = connection.Close() }()
			asked.Add(1)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-ended
	})
	return listener.Addr().String(), asked
}
