package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// create makes objects, with their status.
func (s *side) create(objects ...client.Object) {
	s.t.Helper()
	c := s.api.Client(s.t)
	for _, o := range objects {
		wanted := o.DeepCopyObject().(client.Object)
		if err := c.Create(s.t.Context(), o); err != nil {
			s.t.Fatalf("%s: making %T %s: %v", s.Name, o, o.GetName(), err)
		}
		switch o.(type) {
		case *corev1.Node, *corev1.Pod, *v1alpha1.NetworkConfig:
			wanted.SetResourceVersion(o.GetResourceVersion())
			if err := c.Status().Update(s.t.Context(), wanted); err != nil {
				s.t.Fatalf("%s: writing the status of %T %s: %v", s.Name, o, o.GetName(), err)
			}
		}
	}
}

func (s *side) namespace(name string, labels ...string) {
	s.t.Helper()
	s.create(&corev1.Namespace{ObjectMeta: meta("", name, labels...)},
		&corev1.ServiceAccount{ObjectMeta: meta(name, "default")})
}

func meta(namespace, name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		m.Labels[labels[i]] = labels[i+1]
	}
	return m
}

// found makes what there is in a cluster without peers: nodes, and an agent that is installed.
func (s *side) found() {
	s.t.Helper()
	s.namespace(v1alpha1.NetworkNamespace)
	s.rights()
	for i, n := range s.Nodes {
		node := &corev1.Node{ObjectMeta: meta("", n.Name)}
		for _, v4 := range netnstest.Families {
			node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, netnstest.NodeRange(i, v4).String())
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: netnstest.NodeAddr(i, v4).String()})
		}
		node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
		s.create(node)
	}
	labels := map[string]string{"app": "agent"}
	s.create(&appsv1.DaemonSet{ObjectMeta: meta(v1alpha1.NetworkNamespace, v1alpha1.AgentName), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agent", Image: "agent"}}}},
	}})
}

// rights gives the agents those that are generated, and no others.
func (s *side) rights() {
	s.t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "deploy", "generated", "rbac.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	user := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName}}
	made := 0
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var role rbacv1.ClusterRole // a Role looks the same
		if decoder.Decode(&role) != nil {
			break
		}
		if role.Name != v1alpha1.AgentName {
			continue
		}
		made++
		if role.Kind == "ClusterRole" {
			s.create(&role, &rbacv1.ClusterRoleBinding{ObjectMeta: meta("", role.Name), Subjects: user, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name}})
			continue
		}
		s.create(&rbacv1.Role{ObjectMeta: meta(role.Namespace, role.Name), Rules: role.Rules},
			&rbacv1.RoleBinding{ObjectMeta: meta(role.Namespace, role.Name), Subjects: user, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: role.Kind, Name: role.Name}})
	}
	if made != 2 {
		s.t.Fatalf("there are %d roles of agents, not 2", made)
	}
}

// What the two sides see each other by.
var views = map[string]map[string]string{
	"rome":  {"10.42.0.0/16": "10.80.0.0/16", "fd42::/48": "fd80::/48", "10.43.0.0/24": "10.81.0.0/24"},
	"milan": {"10.42.0.0/16": "10.90.0.0/16", "fd42::/48": "fd90::/48", "10.43.0.0/24": "10.91.0.0/24"},
}

// view is by which address a side sees the other's pod: its number is 80 or 90.
func (s *side) view(i, last int, v4 bool) string {
	number := map[string]int{"rome": 80, "milan": 90}[s.Name]
	return netnstest.PodAddr(number, i, last, v4).String()
}

// config is what one side says, as the other one sees it.
func config(namespace, name string, of, seenBy *side, public tunnel.PublicKey) *v1alpha1.NetworkConfig {
	c := &v1alpha1.NetworkConfig{ObjectMeta: meta(namespace, name), Spec: v1alpha1.NetworkConfigSpec{
		Pods: []string{"10.42.0.0/16", "fd42::/48"}, External: []string{"10.43.0.0/24"},
		PublicKey: public.String(), Endpoints: of.endpoints(), Port: port,
	}}
	for _, real := range append(c.Spec.Pods, c.Spec.External...) {
		c.Status.Views = append(c.Status.Views, v1alpha1.NetworkView{Real: real, View: views[seenBy.Name][real]})
	}
	return c
}

func keys(namespace string, secret tunnel.Secret) *corev1.Secret {
	key := secret.Reveal()
	text := base64.StdEncoding.EncodeToString(key[:])
	return &corev1.Secret{ObjectMeta: meta(v1alpha1.NetworkNamespace, v1alpha1.NetworkKeysName), Data: map[string][]byte{v1alpha1.NetworkKey(namespace): []byte(text)}}
}

// peer makes what is there when rome is milan's consumer: a pod of rome's, shop/web, runs at
// milan's second node, and a Service of shop has the pod of rome's first node.
func (w *world) peer() {
	w.t.Helper()
	at, there := v1alpha1.PeeringNamespace("milan"), v1alpha1.TenantNamespace("rome")
	rome, milan := w.rome, w.milan
	rome.namespace(at)
	rome.namespace("shop")
	milan.namespace(there)
	milan.namespace("shop-rome", v1alpha1.LabelTenant, "rome", v1alpha1.LabelHomeNamespace, "shop")
	rome.create(
		keys(at, rome.secret),
		config(at, v1alpha1.NetworkConsumer, rome, milan, rome.secret.Public()), config(at, v1alpha1.NetworkProvider, milan, rome, milan.secret.Public()),
		&v1alpha1.NamespaceMap{ObjectMeta: meta(at, v1alpha1.NamespaceMapName), Spec: v1alpha1.NamespaceMapSpec{Namespaces: map[string]v1alpha1.NamespaceMapping{"shop": {Strategy: "DefaultName"}}}},
		&corev1.Node{ObjectMeta: meta("", "milan", v1alpha1.LabelType, v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering, "milan")},
		pod("shop", "web", "milan", rome.view(1, 5, true), rome.view(1, 5, false)),
		slice("shop", "back", "10.42.1.5"),
	)
	milan.create(
		keys(there, milan.secret),
		config(there, v1alpha1.NetworkProvider, milan, rome, milan.secret.Public()), config(there, v1alpha1.NetworkConsumer, rome, milan, rome.secret.Public()),
		pod("shop-rome", "web", milan.Nodes[1].Name, "10.42.2.5", "fd42:0:0:2::5", v1alpha1.LabelTenant, "rome", v1alpha1.LabelHomeUID, "uid"),
		slice("shop-rome", "back", milan.view(0, 5, true), v1alpha1.LabelTenant, "rome", discoveryv1.LabelManagedBy, v1alpha1.GroupVersion.Group),
	)
}

func pod(namespace, name, node, ip4, ip6 string, labels ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: meta(namespace, name, labels...),
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "main"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip4, PodIPs: []corev1.PodIP{{IP: ip4}, {IP: ip6}}},
	}
}

func slice(namespace, name, address string, labels ...string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: meta(namespace, name, labels...), AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

// lease is what a node's Lease says.
func (s *side) lease(i int) (*coordinationv1.Lease, map[string]v1alpha1.TunnelReport) {
	s.t.Helper()
	l := &coordinationv1.Lease{}
	if err := s.api.Client(s.t).Get(context.WithoutCancel(s.t.Context()), client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentLease(s.Nodes[i].Name)}, l); err != nil {
		return nil, nil
	}
	var reports map[string]v1alpha1.TunnelReport
	if text := l.Annotations[v1alpha1.AnnotationTunnels]; text != "" {
		if err := json.Unmarshal([]byte(text), &reports); err != nil {
			s.t.Errorf("%s: %v", s.Nodes[i].Name, err)
		}
	}
	return l, reports
}

// alive waits until a tunnel is said to be alive at a node.
func (s *side) alive(t *testing.T, i int, key string) {
	t.Helper()
	until(t, fmt.Sprintf("%s says that %s is alive", s.Nodes[i].Name, key), 2*netnstest.Patience, func() bool {
		_, reports := s.lease(i)
		return reports[key].Alive
	})
}
