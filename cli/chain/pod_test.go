package chain

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func at(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }

// region picks clusters by their region.
func region(values ...string) *v1alpha1.ClusterSelector {
	return &v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{
		{MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "region", Operator: "In", Values: values}}}}}
}

func offloading(strategy v1alpha1.PodOffloadingStrategy, selector *v1alpha1.ClusterSelector) *v1alpha1.NamespaceOffloading {
	return &v1alpha1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.OffloadingName, Generation: 1, CreationTimestamp: at(-time.Hour)},
		Spec:       v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy, ClusterSelector: selector},
		Status:     v1alpha1.NamespaceOffloadingStatus{ObservedGeneration: 1, Phase: v1alpha1.OffloadingPhaseReady},
	}
}

// replaced makes an offloading one whose pods are replaced when their provider is away.
func replaced(o *v1alpha1.NamespaceOffloading) *v1alpha1.NamespaceOffloading {
	o.Spec.WhenUnreachable = v1alpha1.UnreachableReplace
	return o
}

// expression is one over the label of virtual nodes, or over the region.
func expression(operator corev1.NodeSelectorOperator, key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

var (
	virtual = expression(corev1.NodeSelectorOpIn, v1alpha1.LabelType, v1alpha1.TypeVirtualNode)
	local   = expression(corev1.NodeSelectorOpNotIn, v1alpha1.LabelType, v1alpha1.TypeVirtualNode)
)

// admitted is a pod as admission leaves it: with the toleration and these terms.
func admitted(terms ...[]corev1.NodeSelectorRequirement) *corev1.Pod {
	p := plain()
	p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	selector := &corev1.NodeSelector{}
	for _, t := range terms {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: t})
	}
	if len(terms) > 0 {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
	}
	return p
}

func plain() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: at(-time.Minute)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}}}}}}
}

func with(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod { change(p); return p }

type all = []corev1.NodeSelectorRequirement

func TestOutdated(t *testing.T) {
	yes := true
	class := func(p *corev1.Pod) { name := v1alpha1.RuntimeClass; p.Spec.RuntimeClassName = &name }
	eu, us := expression(corev1.NodeSelectorOpIn, "region", "eu"), expression(corev1.NodeSelectorOpIn, "region", "us")
	cases := []struct {
		reason   string
		pod      *corev1.Pod
		strategy v1alpha1.PodOffloadingStrategy
		selector *v1alpha1.ClusterSelector
		want     string
	}{
		{"as admission leaves it", admitted(all{virtual}, all{local}), "", nil, ""},
		{"the selector is in its terms", admitted(all{eu, virtual}, all{local}), "", region("eu"), ""},
		{"terms of its owner are there beside", admitted(all{us, eu, virtual}, all{us, local}), "", region("eu"), ""},
		{"values in another order", admitted(all{expression(corev1.NodeSelectorOpIn, "region", "us", "eu"), virtual}, all{local}), "", region("eu", "us"), ""},
		{"it is older", plain(), v1alpha1.PodsLocalAndRemote, nil, "it may not run at other clusters"},
		{"older than Remote", plain(), v1alpha1.PodsRemote, nil, "it may run in this cluster"},
		{"tightened to Remote", admitted(all{virtual}, all{local}), v1alpha1.PodsRemote, nil, "it may run in this cluster"},
		{"Remote and without terms", admitted(), v1alpha1.PodsRemote, nil, "it may run in this cluster"},
		{"Remote as admission leaves it", admitted(all{virtual}), v1alpha1.PodsRemote, nil, ""},
		{"tightened to Local", admitted(all{virtual}, all{local}), v1alpha1.PodsLocal, nil, "it may run at other clusters"},
		{"Local as it was", plain(), v1alpha1.PodsLocal, nil, ""},
		{"by its RuntimeClass", with(admitted(all{virtual}), class), v1alpha1.PodsLocal, nil, ""},
		{"the RuntimeClass alone is no term", with(plain(), class), v1alpha1.PodsLocal, nil, "it may run in this cluster"},
		{"a selector came later", admitted(all{virtual}, all{local}), "", region("eu"), "it may run at clusters that are not selected"},
		{"the selector has changed", admitted(all{us, virtual}, all{local}), "", region("eu"), "it may run at clusters that are not selected"},
		{"the selector has gone", admitted(all{us, virtual}, all{local}), "", nil, ""},
		{"its RuntimeClass has given it a nodeSelector", with(plain(), func(p *corev1.Pod) {
			class(p)
			p.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
			p.Spec.Tolerations = admitted().Spec.Tolerations
		}), v1alpha1.PodsLocal, nil, ""},
		{"an alternative that no node can match", admitted(all{}, all{virtual}), v1alpha1.PodsRemote, nil, ""},
		{"a pod of a DaemonSet", with(plain(), func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}
		}), v1alpha1.PodsRemote, nil, ""},
		{"a claim of a volume keeps it here", with(plain(), func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
		}), "", nil, ""},
		{"a claim and such terms, and it runs here", with(admitted(all{virtual}, all{local}), func(p *corev1.Pod) {
			p.Spec.NodeName = "rome-1"
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}), "", nil, ""},
		{"a claim, and pods of its namespace may run elsewhere only now", with(plain(), func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}), v1alpha1.PodsRemote, nil, ""},
		{"a claim, and terms of an older build", with(admitted(all{virtual}, all{local}), func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}), "", nil, "it may run at other clusters"},
		{"it has ended", with(plain(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), v1alpha1.PodsRemote, nil, ""},
		{"it is ending", with(plain(), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }), v1alpha1.PodsRemote, nil, ""},
	}
	for _, c := range cases {
		if got := Outdated(c.pod, offloading(c.strategy, c.selector)); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// milan is a virtual node on which the pod of these tests fits.
func milan(change func(*NodeFacts)) NodeFacts {
	n := NodeFacts{Node: corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{
		v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: "milan", v1alpha1.LabelRequest: "default", "region": "eu"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: v1alpha1.TaintVirtualNode, Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("100")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Ready"}},
		}},
		Shapes: []v1alpha1.NodeShape{{Largest: []v1alpha1.ResourceList{
			{"cpu": resource.MustParse("4"), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("50")}}}}}
	if change != nil {
		change(&n)
	}
	return n
}

func TestJudge(t *testing.T) {
	anywhere := admitted(all{virtual}, all{local})
	cases := []struct {
		reason   string
		pod      *corev1.Pod
		selector *v1alpha1.ClusterSelector
		change   func(*NodeFacts)
		want     string // words
		remedy   string
	}{
		{"it fits", anywhere, region("eu"), nil, "it could take the pod", ""},
		{"not selected", anywhere, region("us"), nil, "the namespace's selector leaves it out: region=us", "pelago offload namespace shop --cluster-selector"},
		{"a selector nobody can evaluate leaves out", anywhere, &v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{
			{MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "a b", Operator: "Is"}}}}}, nil, "the namespace's selector leaves it out", ""},
		{"sent home lately", anywhere, nil, func(n *NodeFacts) {
			n.Refused = &v1alpha1.Refusal{Until: at(90 * time.Second), Reason: v1alpha1.ReasonUnschedulable}
		}, "avoid it for 1m30s (Unschedulable)", "tries other nodes first"},
		{"sent home lately, for the provider is cordoned", anywhere, nil, func(n *NodeFacts) {
			n.Refused, n.Tenant = &v1alpha1.Refusal{Until: at(90 * time.Second), Reason: v1alpha1.ReasonCordoned}, "rome-2"
		}, "(Cordoned)", "pelago uncordon tenant rome-2"},
		{"sent home long ago", anywhere, nil, func(n *NodeFacts) { n.Refused = &v1alpha1.Refusal{Until: at(-time.Second)} }, "it could take the pod", ""},
		{"sent home before the node was made anew", anywhere, nil, func(n *NodeFacts) {
			n.Refused, n.Node.CreationTimestamp = &v1alpha1.Refusal{Until: at(50 * time.Second), Count: 1, Reason: v1alpha1.ReasonDrained}, at(-5*time.Second)
		}, "it could take the pod", ""},
		{"sent home since then", anywhere, nil, func(n *NodeFacts) {
			n.Refused, n.Node.CreationTimestamp = &v1alpha1.Refusal{Until: at(50 * time.Second), Count: 1, Reason: v1alpha1.ReasonDrained}, at(-15*time.Second)
		}, "avoid it for 50s (Drained)", ""},
		{"it claims a volume", with(anywhere.DeepCopy(), func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}}}
		}), nil, nil, "volume claims do not travel yet", ""},
		{"the provider gives no more", anywhere, nil, func(n *NodeFacts) {
			n.Node.Status.Allocatable["pods"] = resource.MustParse("0")
			n.Withheld, n.Tenant = &metav1.Condition{Reason: v1alpha1.ReasonCordoned, Message: "it accepts nothing new now"}, "rome"
		}, "it asks for 1 pods, it has 0; its provider says Cordoned: it accepts nothing new now", "pelago uncordon tenant rome"},
		{"others have taken it", anywhere, nil, func(n *NodeFacts) {
			n.Used = v1alpha1.ResourceList{"pods": resource.MustParse("100"), "cpu": resource.MustParse("7")}
		}, "it is full: it asks for 2 cpu, free there is 1; it asks for 1 pods, free there is 0", "spec.limits of its Tenant"},
		{"others have left enough", anywhere, nil, func(n *NodeFacts) { n.Used = v1alpha1.ResourceList{"cpu": resource.MustParse("6")} }, "it could take the pod", ""},
		{"the sum is too small", anywhere, nil, func(n *NodeFacts) { n.Node.Status.Allocatable["cpu"] = resource.MustParse("1") }, "it is too small: it asks for 2 cpu, it has 1", "ask for less"},
		{"the sum hides that nothing big fits", anywhere, nil, func(n *NodeFacts) { n.Shapes[0].Largest[0]["cpu"] = resource.MustParse("1500m") },
			"no node behind it has room for this pod: it asks for 2 cpu, the largest place has 1500m", "pelago status milan"},
		{"one of several places is enough", anywhere, nil, func(n *NodeFacts) {
			n.Shapes = append([]v1alpha1.NodeShape{{Largest: []v1alpha1.ResourceList{{"cpu": resource.MustParse("1")}}}}, n.Shapes...)
		}, "it could take the pod", ""},
		{"a resource nobody has", with(anywhere.DeepCopy(), func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
		}), nil, nil, "it asks for 1 nvidia.com/gpu, it has 0", ""},
		{"nothing is known of its size", anywhere, nil, func(n *NodeFacts) { n.Shapes, n.Node.Status.Allocatable = nil, nil }, "it could take the pod", ""},
		{"its owner wants another", with(anywhere.DeepCopy(), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"region": "us"} }), nil, nil, "the pod's own nodeSelector", ""},
		{"older than the offloading", plain(), nil, nil, "does not tolerate its taints", ""},
		{"cordoned", anywhere, nil, func(n *NodeFacts) {
			n.Node.Spec.Unschedulable = true
			n.Node.Spec.Taints = append(n.Node.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}, "it is cordoned", "kubectl uncordon milan"},
		{"away", anywhere, nil, func(n *NodeFacts) {
			n.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonPeerUnreachable, Message: "no answer for 12 s"}}
		}, "it is not ready: PeerUnreachable: no answer for 12 s", "it heals by itself"},
		{"new", anywhere, nil, func(n *NodeFacts) { n.Node.Status.Conditions = nil }, "nobody has said anything of it yet", "pelago explain peering milan"},
	}
	for _, c := range cases {
		got := judge(c.pod, offloading("", c.selector), milan(c.change), now)
		if !strings.Contains(got.words, c.want) || !strings.Contains(got.remedy, c.remedy) || got.takes != (c.want == "it could take the pod") {
			t.Errorf("%s: %+v, want %q and %q", c.reason, got, c.want, c.remedy)
		}
	}
}

// outline writes a chain in lines: the first letter of each state, then the fact.
func outline(c Chain) string {
	var out strings.Builder
	for _, s := range c.Steps {
		out.WriteString(string(s.State)[:1] + " " + s.Fact + "\n")
	}
	return out.String()
}

// needsSettings makes a pod one that began then and mounts a ConfigMap, next to what
// every pod mounts and what it can do without.
func needsSettings(began metav1.Time) func(*corev1.Pod) {
	optional := true
	return func(p *corev1.Pod) {
		p.Status.Conditions, p.Status.StartTime = nil, &began
		p.Spec.Volumes = []corev1.Volume{
			{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}}}},
			{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}},
			{Name: "b", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "extra", Optional: &optional}}},
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}
	}
}

func TestPodThatJustStarts(t *testing.T) {
	pod := admitted(all{virtual}, all{local})
	pod.Spec.NodeName = "milan"
	needsSettings(at(-time.Second))(pod)
	c := Pod(PodFacts{Now: now, Pod: pod, Offloading: offloading("", nil), Nodes: []NodeFacts{milan(nil)},
		Referred: []Referred{{Reference: Reference{Kind: "ConfigMap", Name: "settings"}}}})
	for _, s := range c.Steps {
		if strings.Contains(s.Evidence+s.Remedy, "settings") {
			t.Errorf("a pod that is a second old: %+v", s)
		}
	}
}

func TestPod(t *testing.T) {
	anywhere := func(change func(*corev1.Pod)) *corev1.Pod {
		p := admitted(all{virtual}, all{local})
		if change != nil {
			change(p)
		}
		return p
	}
	atMilan := func(change func(*corev1.Pod)) *corev1.Pod {
		return anywhere(func(p *corev1.Pod) {
			p.Spec.NodeName = "milan"
			p.Status.Phase = corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if change != nil {
				change(p)
			}
		})
	}
	refused := func(reason, message string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message}}}
		}
	}
	ready := &v1alpha1.MappedNamespace{Name: "shop-rome", Phase: v1alpha1.MappingReady}
	// The warnings of a case are in an annotation of its pod.
	starts := func(all ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions, p.Annotations = nil, map[string]string{"warnings": strings.Join(all, "\n")}
		}
	}
	warnings := func(p *corev1.Pod) []string {
		return strings.FieldsFunc(p.Annotations["warnings"], func(r rune) bool { return r == '\n' })
	}
	unscheduled := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/2 nodes are available: 1 Insufficient cpu."}}
	}
	cases := []struct {
		reason     string
		pod        *corev1.Pod
		offloading *v1alpha1.NamespaceOffloading
		nodes      []NodeFacts
		mapped     *v1alpha1.MappedNamespace
		event      string
		title      string
		want       string
		says       []string // evidence or remedies
	}{
		{"not offloaded", with(plain(), func(p *corev1.Pod) {
			p.Spec.NodeName = "node1"
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), nil, []NodeFacts{milan(nil)}, nil, "", "Pod shop/web is in this cluster",
			"A namespace shop is offloaded\nD it is bound to a node\nD it runs and is ready\n", []string{"node1, a node of this cluster", "pelago offload namespace shop"}},
		{"away and well", atMilan(nil), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nD namespace shop is there at milan\nD milan runs it\nD it runs and is ready\n",
			[]string{"milan, a virtual node of milan", "shop-rome", "it may run here or at other clusters"}},
		{"here, though it could be away", anywhere(func(p *corev1.Pod) {
			p.Spec.NodeName = "node1"
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), offloading("", nil), []NodeFacts{milan(nil), milan(func(n *NodeFacts) { n.Node.Name = "oslo"; n.Node.Status.Allocatable["cpu"] = resource.MustParse("1") })}, nil, "",
			"Pod shop/web is in this cluster",
			"D namespace shop is offloaded\nD it was made under today's terms\nD node milan could take it\nA node oslo could take it\nD it is bound to a node\nD it runs and is ready\n",
			[]string{"it is too small: it asks for 2 cpu, it has 1"}},
		{"older", with(plain(), func(p *corev1.Pod) { p.CreationTimestamp = at(-2 * time.Hour); p.Spec.NodeName = "node1" }), offloading("", nil), nil, nil, "",
			"Pod shop/web is in this cluster",
			"D namespace shop is offloaded\nB it was made under today's terms\nD it is bound to a node\nW it runs and is ready\n",
			[]string{"it may not run at other clusters: it is older than the offloading", "pelago offload namespace shop --restart-workloads"}},
		{"no node takes it", anywhere(unscheduled), offloading(v1alpha1.PodsLocalAndRemote, nil),
			[]NodeFacts{milan(func(n *NodeFacts) { n.Node.Spec.Unschedulable = true })}, nil, "", "Pod shop/web waits for a node",
			"D namespace shop is offloaded\nD it was made under today's terms\nA node milan could take it\nB it is bound to a node\nU it runs and is ready\n",
			[]string{"the scheduler says: 0/2 nodes are available: 1 Insufficient cpu", "milan: kubectl uncordon milan"}},
		{"no virtual node", anywhere(unscheduled), offloading(v1alpha1.PodsLocalAndRemote, nil), nil, nil, "", "Pod shop/web waits for a node", "", []string{"there is no virtual node"}},
		{"no room and not offloaded", with(plain(), unscheduled), nil, nil, nil, "", "Pod shop/web waits for a node", "", []string{"let it run elsewhere: pelago offload namespace shop"}},
		{"no room in a namespace that is never offloaded", with(with(plain(), unscheduled), func(p *corev1.Pod) { p.Namespace = "default" }), nil, nil, nil, "", "Pod default/web waits for a node", "", []string{"in a namespace of its own"}},
		{"gated", anywhere(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}} }), offloading("", nil), nil, nil, "",
			"Pod shop/web waits for a node", "", []string{"its scheduling gate example.com/wait is closed"}},
		{"Local", with(plain(), func(p *corev1.Pod) { p.Spec.NodeName = "node1" }), offloading(v1alpha1.PodsLocal, nil), []NodeFacts{milan(nil)}, nil, "",
			"Pod shop/web is in this cluster",
			"D namespace shop is offloaded\nD it was made under today's terms\nA it may run at other clusters\nD it is bound to a node\nW it runs and is ready\n", nil},
		{"refused", atMilan(refused(v1alpha1.ReasonRefused, "spec.containers[0].securityContext.privileged: not allowed")), offloading("", nil), []NodeFacts{milan(nil)}, ready, "",
			"Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nD namespace shop is there at milan\nB milan runs it\nU it runs and is ready\n",
			[]string{"Refused: spec.containers[0].securityContext.privileged: not allowed", "docs/offloading-fields.md"}},
		{"its name is taken for a moment", atMilan(refused(v1alpha1.ReasonNameTaken, "")), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan", "", []string{"this takes a moment"}},
		{"its API server makes none for a moment", atMilan(func(p *corev1.Pod) {
			refused(v1alpha1.ReasonWaiting, "its webhook fails")(p)
			p.Status.Reason, p.Status.Message = v1alpha1.ReasonWaiting, "its webhook fails"
		}), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nD namespace shop is there at milan\nW milan runs it\nU it runs and is ready\n",
			[]string{"Waiting: its webhook fails", "this takes a moment"}},
		{"its provider does not end it", atMilan(func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: now}
			p.Status.Reason, p.Status.Message = v1alpha1.ReasonTerminating, "milan was told to end this pod and has not"
		}), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is ending", "", []string{"milan was told to end this pod and has not"}},
		{"the namespace is refused", atMilan(refused(v1alpha1.ReasonNamespaceMissing, "")), offloading("", nil), []NodeFacts{milan(nil)},
			&v1alpha1.MappedNamespace{Phase: v1alpha1.MappingRefused, Reason: v1alpha1.ReasonNameTaken, Message: "shop-rome is somebody else's"}, "",
			"Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nB namespace shop is there at milan\nU milan runs it\nU it runs and is ready\n",
			[]string{"NameTaken: shop-rome is somebody else's"}},
		{"not answered", atMilan(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }), offloading("", nil), []NodeFacts{milan(nil)}, ready,
			"OffloadingRefused: it asks for too much", "Pod shop/web is at milan", "", []string{"OffloadingRefused: it asks for too much"}},
		{"an image that is not there", atMilan(func(p *corev1.Pod) {
			p.Status.Conditions = nil
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
		}), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan", "", []string{"container c: ImagePullBackOff: no such image", "kubectl -n shop describe pod web"}},
		{"its provider warns of something", atMilan(starts("milan: FailedMount: no configmap", "milan: B: b", "milan: C: c", "milan: D: d")), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nD namespace shop is there at milan\nD milan runs it\nB it runs and is ready\n",
			[]string{"it is starting; milan: FailedMount: no configmap; milan: B: b; milan: C: c\n", "kubectl -n shop describe pod web"}},
		{"its provider warned of something, and it is ready", atMilan(func(p *corev1.Pod) { p.Annotations = map[string]string{"warnings": "milan: old"} }), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nD namespace shop is there at milan\nD milan runs it\nD it runs and is ready\n", nil},
		{"a change is refused", atMilan(func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: v1alpha1.ConditionChangeRefused, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonChangeRefused, Message: "spec.x: leave it out"})
		}), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nD namespace shop is there at milan\nD milan runs it\nD it runs and is ready\nB what runs is what the pod says now\n",
			[]string{"ChangeRefused: spec.x: leave it out", "delete the pod so that it is made anew"}},
		{"refused by a provider that is drained", atMilan(refused(v1alpha1.ReasonDrained, "")), offloading("", nil), []NodeFacts{milan(func(n *NodeFacts) { n.Tenant = "rome-2" })}, ready, "",
			"Pod shop/web is at milan", "", []string{"pelago uncordon tenant rome-2\n"}},
		{"gateways do not know it yet", atMilan(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonGatewaysBehind, Message: "the gateway of milan does not know it"}}
		}), offloading("", nil), []NodeFacts{milan(nil)}, ready, "", "Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nD node milan is ready\nD namespace shop is there at milan\nD milan runs it\nW it runs and is ready\n",
			[]string{"it runs there and is ready, and waits until it can be reached: the gateway of milan does not know it"}},
		{"the peer is away", atMilan(nil), offloading("", nil), []NodeFacts{milan(func(n *NodeFacts) {
			n.Node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonPeerUnreachable}
		})}, ready, "", "Pod shop/web is at milan",
			"D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nB node milan is ready\nU namespace shop is there at milan\nU milan runs it\nU it runs and is ready\n", []string{"PeerUnreachable", "the pod is kept, and not replaced"}},
		{"the peer is away, and the pod may be replaced", atMilan(nil), replaced(offloading("", nil)), []NodeFacts{milan(func(n *NodeFacts) {
			n.Node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonPeerUnreachable}
		})}, ready, "", "Pod shop/web is at milan", "", []string{"PeerUnreachable", "after five minutes the pod is evicted"}},
		{"of a DaemonSet", atMilan(func(p *corev1.Pod) {
			yes := true
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonVirtualNode}}
		}), nil, []NodeFacts{milan(nil)}, nil, "", "Pod shop/web is at milan",
			"A namespace shop is offloaded\nD it is bound to a node\nD node milan is ready\nA it runs and is ready\n", []string{"no container runs"}},
		{"it has ended", atMilan(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"} }), offloading("", nil), []NodeFacts{milan(nil)}, ready, "",
			"Pod shop/web has ended: Failed", "D namespace shop is offloaded\nD it was made under today's terms\nD it is bound to a node\nA it runs and is ready\n", []string{"it has ended: Evicted"}},
	}
	for _, c := range cases {
		got := Pod(PodFacts{Now: now, Pod: c.pod, Offloading: c.offloading, Nodes: c.nodes, Mapped: c.mapped, Event: c.event, Warnings: warnings(c.pod)})
		if got.Title != c.title {
			t.Errorf("%s: the title is %q, want %q", c.reason, got.Title, c.title)
		}
		if text := outline(got); c.want != "" && text != c.want {
			t.Errorf("%s:\n%swant\n%s", c.reason, text, c.want)
		}
		var said strings.Builder
		for _, s := range got.Steps {
			said.WriteString(s.Evidence + "\n" + s.Remedy + "\n")
			if s.State == Broken && s.Evidence == "" {
				t.Errorf("%s: %q is not so, and nothing shows why", c.reason, s.Fact)
			}
		}
		for _, want := range c.says {
			if !strings.Contains(said.String(), want) {
				t.Errorf("%s: it lacks %q:\n%s", c.reason, want, said.String())
			}
		}
	}
}
