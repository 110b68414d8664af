package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
	"github.com/pelago-dev/pelago/internal/home"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }

func when(d time.Duration) *metav1.Time { t := at(d); return &t }

// busy is a cluster with something of everything.
func busy() *snapshot {
	one := int32(1)
	deployment := func(name string, available int32) appsv1.Deployment {
		return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &one,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "pelago.dev/pelago:v0.3.0"}}}}},
			Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: available}}
	}
	milan := v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1, Consume: &v1alpha1.Consume{}}}
	milan.Status = v1alpha1.PeeringStatus{Roles: []v1alpha1.Role{v1alpha1.RoleConsumer, v1alpha1.RoleProvider},
		Remote: &v1alpha1.ClusterInfo{Name: "milan", Version: "v0.3.0"}, LastContact: when(-20 * time.Second),
		Credential: &v1alpha1.CredentialStatus{NotAfter: at(700 * time.Hour), RenewAfter: at(460 * time.Hour)}, Conditions: well()}
	paris := v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "paris-with-a-name-of-forty-characters-ok"}, Spec: v1alpha1.PeeringSpec{ClusterID: id2, Consume: &v1alpha1.Consume{}}}
	paris.Status = v1alpha1.PeeringStatus{Roles: []v1alpha1.Role{v1alpha1.RoleConsumer}, LastContact: when(-3 * time.Hour),
		Conditions: []metav1.Condition{isNot(v1alpha1.ConditionReady, v1alpha1.ReasonPeerUnreachable, "dialing https://192.0.2.9:6443: i/o timeout")}}
	tenant := v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.TenantSpec{ClusterID: id1, TenantTerms: v1alpha1.TenantTerms{
		State: v1alpha1.TenantCordoned, Limits: &v1alpha1.TenantLimits{Resources: v1alpha1.ResourceList{"cpu": resource.MustParse("8")}}}}}
	tenant.Status = v1alpha1.TenantStatus{Used: v1alpha1.ResourceList{"cpu": resource.MustParse("2500m"), "memory": resource.MustParse("5000Mi"), "pods": resource.MustParse("7")},
		LastContact: when(-40 * time.Second), Conditions: []metav1.Condition{is(v1alpha1.ConditionReady)}}
	accepted := v1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-peering-milan", Name: "default"},
		Spec: v1alpha1.ResourceOfferSpec{Resources: v1alpha1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")}}}
	accepted.Status.Conditions = []metav1.Condition{is(v1alpha1.ConditionAccepted)}
	used := v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: "used"}, Spec: v1alpha1.InvitationSpec{Expires: at(time.Hour)}}
	used.Status.BoundTo = &v1alpha1.Binding{}
	return &snapshot{
		settings:    home.Config{Cluster: home.Cluster{Name: "rome"}, APIServer: home.APIServer{URL: "https://rome.example:6443"}},
		id:          "11111111-2222-4333-8444-555555555555",
		kubernetes:  "v1.36.3",
		deployments: []appsv1.Deployment{deployment("pelago-auth", 0), deployment("pelago-manager", 1)},
		trouble:     map[string]string{"pelago-auth": "the nodes cannot pull image pelago.dev/pelago:v0.3.0 (ImagePullBackOff); push it where they can, or choose another: --image"},
		peerings:    []v1alpha1.Peering{milan, paris},
		tenants:     []v1alpha1.Tenant{tenant},
		offers:      []v1alpha1.ResourceOffer{accepted},
		invitations: []v1alpha1.Invitation{
			{ObjectMeta: metav1.ObjectMeta{Name: "turin-0123456789ab"}, Spec: v1alpha1.InvitationSpec{Consumer: "turin", Expires: at(30 * time.Minute)}},
			{ObjectMeta: metav1.ObjectMeta{Name: "over"}, Spec: v1alpha1.InvitationSpec{Expires: at(-time.Minute)}},
			used,
		},
		fabric:      joined(),
		requests:    []v1alpha1.ResourceRequest{requestIn("pelago-peering-milan", "default", agreed...), requestIn("pelago-peering-milan", "batch", isNot(v1alpha1.ConditionOffered, v1alpha1.ReasonNothingFree, "full"))},
		tombstones:  []string{"genoa"},
		nodes:       []corev1.Node{virtualNode("milan", "milan", corev1.ConditionTrue), virtualNode("paris", "paris-with-a-name-of-forty-characters-ok", corev1.ConditionFalse), virtualNode("milan-batch", "milan", corev1.ConditionFalse)},
		offloadings: offloadings(),
		sent:        map[string][]string{"shop": {"catalogue", "search"}, "bank": {"a", "b", "c", "d", "e", "f"}},
		maps:        shownObjects(),
		pods: []corev1.Pod{podOn("shop", "a", "milan"), podOn("shop", "b", "milan"), podOn("shop", "c", "node1"), podOn("shop", "d", ""),
			sick("shop", "e", "milan", corev1.PodRunning, "ContainersNotReady", -time.Hour), sick("shop", "f", "milan", corev1.PodPending, v1alpha1.ReasonNotAdmitted, -time.Second),
			sick("shop", "g", "milan", corev1.PodPending, v1alpha1.ReasonNotAdmitted, -time.Second), sick("shop", "h", "milan", corev1.PodPending, "", -time.Second),
			sick("bare", "i", "milan", corev1.PodPending, "", -time.Hour), sick("shop", "j", "paris", corev1.PodRunning, "NodeNotReady", -time.Hour)},
	}
}

// sick is a pod that is not ready since then.
func sick(namespace, name, node string, phase corev1.PodPhase, reason string, since time.Duration) corev1.Pod {
	p := podOn(namespace, name, node)
	p.CreationTimestamp = at(since)
	p.Status = corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, LastTransitionTime: at(since)}}}
	return p
}

// virtualNode is one with eight CPUs.
func virtualNode(name, peering string, ready corev1.ConditionStatus) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: peering, v1alpha1.LabelRequest: "default"}}}
	n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Ready"}}
	if ready != corev1.ConditionTrue {
		n.Status.Conditions[0].Reason, n.Status.Conditions[0].Message = v1alpha1.ReasonPeerUnreachable, "no answer for 12 s"
	}
	return n
}

// offloadings are one that is well, one that some refuse, and one that nothing matches.
func offloadings() []v1alpha1.NamespaceOffloading {
	one := func(namespace string, phase v1alpha1.OffloadingPhase, clusters ...v1alpha1.ClusterOffloading) v1alpha1.NamespaceOffloading {
		return v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.OffloadingName},
			Status: v1alpha1.NamespaceOffloadingStatus{Phase: phase, Clusters: clusters}}
	}
	milan := atCluster("milan", is(v1alpha1.ConditionReady))
	onward := atCluster("milan", is(v1alpha1.ConditionReady))
	onward.Onward = true
	taken := atCluster("paris", isNot(v1alpha1.ConditionReady, v1alpha1.ReasonNameTaken, "bank-rome is not this tenant's"))
	return []v1alpha1.NamespaceOffloading{
		one("bank", v1alpha1.OffloadingPhaseSomeFailed, milan, taken),
		one("lab", v1alpha1.OffloadingPhaseNoClusterSelected),
		one("new", ""),
		one("shop", v1alpha1.OffloadingPhaseReady, onward, v1alpha1.ClusterOffloading{Name: "paris"}),
	}
}

// shownObjects are what two providers refuse or have otherwise, more than is told.
func shownObjects() []v1alpha1.NamespaceMap {
	of := func(peering string, more int32, objects ...v1alpha1.ReflectedObject) v1alpha1.NamespaceMap {
		return v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.NamespaceMapName},
			Status: v1alpha1.NamespaceMapStatus{Objects: objects, MoreObjects: more}}
	}
	var many []v1alpha1.ReflectedObject
	for i := range 6 {
		many = append(many, v1alpha1.ReflectedObject{Kind: "Ingress", Namespace: "shop", Name: "web-" + string(rune('a'+i)), Refused: true, Reason: v1alpha1.ReasonRefused,
			Message: "the provider refuses it; ask the provider's owner, who sees the reason in the ShadowObject ingress-0123"})
	}
	return []v1alpha1.NamespaceMap{
		of("milan", 3, append(many, v1alpha1.ReflectedObject{Kind: "Service", Namespace: "shop", Name: "front", Addresses: []string{"192.0.2.7", "lb.example"}})...),
		of("paris-with-a-name-of-forty-characters-ok", 0, v1alpha1.ReflectedObject{Kind: "Service", Namespace: "shop", Name: "web", Reason: v1alpha1.ReasonFamilyMissing,
			Message: "that cluster has no Services of its IP families; give it a family that both clusters have"}),
	}
}

// podOn is a pod that asks for half a CPU and is well; those without a node are older than the offloading.
func podOn(namespace, name, node string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}, Spec: corev1.PodSpec{NodeName: node,
		Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("500m")}}}}}}
	if node != "" {
		p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	}
	return p
}

// What the owner's resource reader does wrong is a problem of each tenant it concerns.
func TestReportReader(t *testing.T) {
	s := busy()
	problems := len(s.report(now).Problems)
	for reason, status := range map[string]metav1.ConditionStatus{
		v1alpha1.ReasonLastAnswer: metav1.ConditionFalse, v1alpha1.ReasonOnlyUsed: metav1.ConditionFalse,
		v1alpha1.ReasonBounded: metav1.ConditionTrue, v1alpha1.ReasonReady: metav1.ConditionTrue,
	} {
		c := metav1.Condition{Type: v1alpha1.ConditionReaderAnswering, Status: status, Reason: reason, Message: "the resource reader fails"}
		meta.SetStatusCondition(&s.tenants[0].Status.Conditions, c)
		found := s.report(now).Problems
		i := slices.IndexFunc(found, func(p Problem) bool { return p.Object == "tenant milan" && p.Reason == reason })
		switch {
		case reason == v1alpha1.ReasonReady:
			if i >= 0 || len(found) != problems {
				t.Errorf("a reader that answers: %+v", found)
			}
		case i < 0 || !strings.Contains(found[i].Message, "resource reader") || !strings.Contains(found[i].Remedy, "resource reader"):
			t.Errorf("%s: %+v", reason, found)
		}
	}
}

func TestReport(t *testing.T) {
	well := busy()
	well.deployments, well.peerings, well.invitations, well.tombstones = well.deployments[1:], well.peerings[:1], nil, nil
	well.requests, well.tenants[0].Spec.State = well.requests[:1], ""
	well.fabric.configs = well.fabric.configs[:2]
	well.nodes, well.offloadings, well.pods, well.maps = well.nodes[:1], well.offloadings[3:], well.pods[:3], nil
	narrow := busy()
	if err := narrow.narrow("milan"); err != nil {
		t.Fatal(err)
	}
	fresh := &snapshot{settings: home.Config{Cluster: home.Cluster{Name: "rome"}}, kubernetes: "v1.36.3"}
	for name, s := range map[string]*snapshot{"busy": busy(), "well": well, "narrow": narrow, "fresh": fresh} {
		var out bytes.Buffer
		report := s.report(now)
		if err := (view{out: &out, now: now, width: screen.Width, detailed: name == "narrow"}).report(report); err != nil {
			t.Fatal(err)
		}
		golden(t, "status-"+name+".txt", out.String())
		for line := range strings.Lines(out.String()) {
			if n := len([]rune(line)) - 1; n > screen.Width && !strings.HasPrefix(line, "    kubectl ") {
				t.Errorf("%s: a line of %d columns: %q", name, n, line)
			}
		}
		if name == "busy" {
			out.Reset()
			if err := screen.Document(&out, "json", report); err != nil {
				t.Fatal(err)
			}
			golden(t, "status.json", out.String())
		}
	}
	var out bytes.Buffer
	if err := (view{out: &out, now: now}).report(busy().report(now)); err != nil || strings.Contains(out.String(), "fort…") ||
		!strings.Contains(out.String(), "\nparis-with-a-name-of-forty-characters-ok  ") {
		t.Errorf("a program reads %q, %v", out.String(), err)
	}
	if err := busy().narrow("nobody"); err == nil || !strings.Contains(err.Error(), "there is genoa, milan") {
		t.Errorf("a name there is not: %v", err)
	}
}

// TestNarrowToAConsumer holds that at a provider the consumer's own name means one cluster, whatever its
// Peering and its Tenant are called here, and two clusters only where there are two.
func TestNarrowToAConsumer(t *testing.T) {
	peering := func(name, id, own string) v1alpha1.Peering {
		p := v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeeringSpec{ClusterID: id}}
		if own != "" {
			p.Status.Remote = &v1alpha1.ClusterInfo{Name: own}
		}
		return p
	}
	tenant := func(name, id string) v1alpha1.Tenant {
		return v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.TenantSpec{ClusterID: id},
			Status: v1alpha1.TenantStatus{Cluster: &v1alpha1.ClusterInfo{Name: "capital"}}}
	}
	for _, c := range []struct {
		reason   string
		peerings []v1alpha1.Peering
		tenant   v1alpha1.Tenant
		err      string
	}{
		{"of one name here", []v1alpha1.Peering{peering("rome", id1, "capital")}, tenant("rome", id1), ""},
		{"of two names here", []v1alpha1.Peering{peering("roma", id1, "capital")}, tenant("rome", id1), ""},
		{"known by its tenant only", []v1alpha1.Peering{peering("rome", id1, "")}, tenant("rome", id1), ""},
		{"two clusters", []v1alpha1.Peering{peering("rome", id1, "capital"), peering("paris", id2, "capital")}, tenant("rome", id1),
			"several clusters call themselves capital: rome (cluster " + id1 + "), paris (cluster " + id2 + "); use one of these names"},
	} {
		s := &snapshot{peerings: c.peerings, tenants: []v1alpha1.Tenant{c.tenant}}
		if err := s.narrow("turin"); err == nil || strings.Contains(err.Error(), "rome, rome") {
			t.Errorf("%s: a name that nobody has: %v", c.reason, err)
		}
		err := s.narrow("capital")
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %s", c.reason, err, c.err)
			}
		} else if err != nil || len(s.peerings) != 1 || len(s.tenants) != 1 {
			t.Errorf("%s: %v, %d peerings, %d tenants", c.reason, err, len(s.peerings), len(s.tenants))
		}
	}
}

func TestServiceURL(t *testing.T) {
	node := func(ready corev1.ConditionStatus, addresses ...corev1.NodeAddress) corev1.Node {
		return corev1.Node{Status: corev1.NodeStatus{Addresses: addresses, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	inside := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}
	inside2 := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}
	outside := corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "203.0.113.7"}
	six := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::1"}
	virtual := node(corev1.ConditionTrue, outside)
	virtual.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	cases := []struct {
		reason  string
		kind    corev1.ServiceType
		ingress []corev1.LoadBalancerIngress
		nodes   []corev1.Node
		want    string
	}{
		{"a load balancer", corev1.ServiceTypeLoadBalancer, []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}, nil, "https://203.0.113.9:8443"},
		{"a load balancer with a name", corev1.ServiceTypeLoadBalancer, []corev1.LoadBalancerIngress{{Hostname: "lb.example"}}, nil, "https://lb.example:8443"},
		{"a load balancer that is not there yet", corev1.ServiceTypeLoadBalancer, nil, nil, "error: has no address yet"},
		{"a node", corev1.ServiceTypeNodePort, nil, []corev1.Node{node(corev1.ConditionTrue, inside)}, "https://10.0.0.1:30443"},
		{"an outside address is better", corev1.ServiceTypeNodePort, nil, []corev1.Node{node(corev1.ConditionTrue, inside), node(corev1.ConditionTrue, inside2, outside)}, "https://203.0.113.7:30443"},
		{"the address that also is the API server's is known to be reached", corev1.ServiceTypeNodePort, nil, []corev1.Node{node(corev1.ConditionTrue, inside), node(corev1.ConditionTrue, inside2)}, "https://10.0.0.2:30443"},
		{"IPv6 in brackets", corev1.ServiceTypeNodePort, nil, []corev1.Node{node(corev1.ConditionTrue, six)}, "https://[2001:db8::1]:30443"},
		{"not a node that is not ready", corev1.ServiceTypeNodePort, nil, []corev1.Node{node(corev1.ConditionFalse, outside)}, "error: no node of this cluster is ready"},
		{"not a virtual node", corev1.ServiceTypeNodePort, nil, []corev1.Node{virtual}, "error: no node of this cluster is ready"},
		{"inside only", corev1.ServiceTypeClusterIP, nil, nil, "error: from inside this cluster only; run pelago install --auth-service-type"},
	}
	for _, c := range cases {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "pelago-auth"}, Spec: corev1.ServiceSpec{Type: c.kind, Ports: []corev1.ServicePort{{Port: 8443, NodePort: 30443}}}}
		s.Status.LoadBalancer.Ingress = c.ingress
		got, err := serviceURL(s, c.nodes, "10.0.0.2")
		if want, wrong := strings.CutPrefix(c.want, "error: "); wrong {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "config.auth.url") {
				t.Errorf("%s: %q, %v; want %q", c.reason, got, err, want)
			}
		} else if got != c.want || err != nil {
			t.Errorf("%s: %q, %v; want %q", c.reason, got, err, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0s", 42 * time.Second: "42s", 90 * time.Minute: "90m", 47 * time.Hour: "47h", 720 * time.Hour: "30d"} {
		if got := span(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

// TestStatusAndExplain runs both against a server.
func TestStatusAndExplain(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1, Provide: &v1alpha1.Provide{Tenant: "milan"},
		Consume: &v1alpha1.Consume{AuthURL: "https://milan:1", CASHA256: hash, TokenSecret: "not-there"}}}
	s.create(p, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.TenantSpec{ClusterID: id1, PeeringUID: id1}})
	got := s.run("status")
	if got.code != 0 || !strings.Contains(got.out, "peering milan: nobody has looked at it yet") || !strings.Contains(got.out, "pelago-manager: is not there") {
		t.Errorf("status: %+v", got)
	}
	got = s.run("explain", "peering", "milan")
	if got.code != 0 || !strings.Contains(got.out, "the Secret pelago-system/not-there does not exist") || !strings.Contains(got.out, "milan uses this cluster") {
		t.Errorf("explain: %+v", got)
	}
	if got := s.run("explain", "tenant", "milan", "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"state": "Waiting"`) {
		t.Errorf("explain tenant: %+v", got)
	}
	if got := s.run("version"); got.code != 0 || !strings.Contains(got.out, "not installed") || !strings.Contains(got.out, "v1.2.3") {
		t.Errorf("version: %+v", got)
	}
	s.testTunnels(t, "milan")
}
