package content

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func serviceText(fields string) string { return `{"content":{` + fields + `}}` }

const webPort = `"ports":[{"name":"web","port":80,"targetPort":8080}]`

func TestService(t *testing.T) {
	ports := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"name":"p%d","port":%d,"targetPort":"x"}`, i, i+1))
		}
		return `"ports":[` + strings.Join(all, ",") + `]`
	}
	testDecode(t, "Service", Rules{NodePorts: true, LoadBalancers: true}, []decoding{
		{"a plain one", serviceText(webPort + `,"selector":{"app":"web"}`), ""},
		{"headless", serviceText(webPort + `,"headless":true`), ""},
		{"a load balancer", serviceText(webPort + `,"type":"LoadBalancer"`), ""},
		{"sticky, dual stack, early", serviceText(webPort + `,"sticky":60,"ipFamilyPolicy":"PreferDualStack","publishNotReadyAddresses":true`), ""},
		{"as many ports as can be", serviceText(ports(32)), ""},
		{"a port more", serviceText(ports(33)), "33 ports, at most 32"},
		{"one family", serviceText(webPort + `,"ipFamilies":["IPv6"],"ipFamilyPolicy":"SingleStack"`), ""},
		{"both families", serviceText(webPort + `,"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack"`), ""},
		{"a family twice", serviceText(webPort + `,"ipFamilies":["IPv6","IPv6"]`), "ipFamilies: the family IPv6 twice"},
		{"three families", serviceText(webPort + `,"ipFamilies":["IPv4","IPv6","IPv4"]`), "3 families, at most 2"},
		{"an unknown family", serviceText(webPort + `,"ipFamilies":["IPv5"]`), `"IPv5" is unknown`},
		{"an address of its own choice", serviceText(webPort + `,"clusterIP":"10.0.0.10"`), "clusterIP"},
		{"addresses of others (CVE-2020-8554)", serviceText(webPort + `,"externalIPs":["8.8.8.8"]`), "externalIPs"},
		{"a load balancer's address", serviceText(webPort + `,"loadBalancerIP":"8.8.8.8"`), "loadBalancerIP"},
		{"sources", serviceText(webPort + `,"loadBalancerSourceRanges":[]`), "loadBalancerSourceRanges"},
		{"a class", serviceText(webPort + `,"loadBalancerClass":"x"`), "loadBalancerClass"},
		{"a node's port", serviceText(`"ports":[{"port":80,"targetPort":80,"nodePort":30000}]`), "nodePort"},
		{"another name", serviceText(`"type":"ExternalName","externalName":"base.example.org"`), ""},
		{"another name, as DNS writes it", serviceText(`"type":"ExternalName","externalName":"base.example.org."`), ""},
		{"another name that is none", serviceText(`"type":"ExternalName"`), `externalName: "" is no name`},
		{"another name of a shell", serviceText(`"type":"ExternalName","externalName":"a;b"`), `externalName: "a;b" is no name`},
		{"another name, and ports", serviceText(webPort + `,"type":"ExternalName","externalName":"base.example.org"`), "has an externalName alone"},
		{"another name by its field", serviceText(`"externalName":"kubernetes.default"`), "for Services of the type ExternalName"},
		{"an unknown type", serviceText(`"type":"Mesh"`), "unknown"},
		{"a headless load balancer", serviceText(`"type":"LoadBalancer","headless":true`), "headless"},
		{"no port", serviceText(`"ports":[{"port":0,"targetPort":1}]`), "from 1 to 65535"},
		{"a target out of range", serviceText(`"ports":[{"port":1,"targetPort":70000}]`), "from 1 to 65535"},
		{"sticky for ever", serviceText(`"sticky":90000`), "sticky"},
		{"a number too large", serviceText(`"ports":[{"port":1e9999,"targetPort":1}]`), "not the JSON"},
	})
	decoded := func(kind string, rules Rules) *corev1.Service {
		o, wrong := Kinds["Service"].Decode(serviceText(webPort+`,"type":"`+kind+`"`), rules)
		if wrong != "" {
			t.Fatal(wrong)
		}
		return o.(*corev1.Service)
	}
	for _, c := range []struct {
		kind  string
		rules Rules
		want  corev1.ServiceType
	}{
		{"NodePort", Rules{}, "ClusterIP"}, {"NodePort", Rules{NodePorts: true}, "NodePort"}, {"NodePort", Rules{LoadBalancers: true}, "ClusterIP"},
		{"LoadBalancer", Rules{}, "ClusterIP"}, {"LoadBalancer", Rules{LoadBalancers: true}, "LoadBalancer"}, {"LoadBalancer", Rules{NodePorts: true}, "ClusterIP"},
		{"", Rules{NodePorts: true, LoadBalancers: true}, "ClusterIP"},
	} {
		if got := decoded(c.kind, c.rules).Spec.Type; got != c.want {
			t.Errorf("%q under %+v becomes %s", c.kind, c.rules, got)
		}
		reason, message := Kinds["Service"].Lacks(serviceText(webPort+`,"type":"`+c.kind+`"`), c.rules)
		if (reason == v1alpha1.ReasonTypeNotAllowed) != (c.kind != "" && c.kind != string(c.want)) || (message == "") != (reason == "") {
			t.Errorf("%q under %+v: it says %q %q", c.kind, c.rules, reason, message)
		}
	}
	all := func(netip.Addr) bool { return true }
	for _, c := range []struct {
		kind  string
		rules Rules
		want  corev1.ServiceExternalTrafficPolicy
	}{
		{"NodePort", Rules{NodePorts: true, Allows: all}, "Local"}, {"LoadBalancer", Rules{LoadBalancers: true, Allows: all}, "Local"},
		{"NodePort", Rules{NodePorts: true}, ""}, {"NodePort", Rules{Allows: all}, ""}, {"ClusterIP", Rules{NodePorts: true, Allows: all}, ""},
	} {
		if got := decoded(c.kind, c.rules).Spec.ExternalTrafficPolicy; got != c.want {
			t.Errorf("%s, with a network %v: who comes from outside is sent by %q, want %q", c.kind, c.rules.Allows != nil, got, c.want)
		}
	}
}

// TestEncodeService: what of home's Service is sent.
func TestEncodeService(t *testing.T) {
	s := &corev1.Service{Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.1.1", ClusterIPs: []string{"10.96.1.1"}, ExternalIPs: []string{"192.0.2.1"},
		IPFamilies: []corev1.IPFamily{"IPv6"}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
		LoadBalancerIP: "192.0.2.2", LoadBalancerSourceRanges: []string{"192.0.2.0/24"}, LoadBalancerClass: new("x"), HealthCheckNodePort: 31000,
		Ports:    []corev1.ServicePort{{Name: "web", Protocol: "TCP", Port: 80, TargetPort: intstr.FromString("http"), NodePort: 30000}},
		Selector: map[string]string{"app": "web"}, SessionAffinity: corev1.ServiceAffinityClientIP,
	}}
	text, wrong := Kinds["Service"].Encode(s)
	want := `{"content":{"type":"LoadBalancer","ports":[{"name":"web","protocol":"TCP","port":80,"targetPort":"http"}],"selector":{"app":"web"},"sticky":10800,"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv6"]}}`
	if diff := cmp.Diff(want, text); diff != "" || wrong != "" {
		t.Error(wrong, diff)
	}
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "base.example.org"
	text, wrong = Kinds["Service"].Encode(s)
	if diff := cmp.Diff(`{"content":{"type":"ExternalName","externalName":"base.example.org"}}`, text); diff != "" || wrong != "" {
		t.Error(wrong, diff)
	}
}

// TestExternalName: another name is taken of a tenant that has no Ingresses, and is made anew when a
// Service becomes one or ceases to be.
func TestExternalName(t *testing.T) {
	k := Kinds["Service"]
	alias := serviceText(`"type":"ExternalName","externalName":"base.example.org"`)
	decoded := func(text string) *corev1.Service {
		o, wrong := k.Decode(text, Rules{})
		if wrong != "" {
			t.Fatal(wrong)
		}
		return o.(*corev1.Service)
	}
	want := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "base.example.org", SessionAffinity: corev1.ServiceAffinityNone}
	if diff := cmp.Diff(want, decoded(alias).Spec); diff != "" {
		t.Error(diff)
	}
	if o, wrong := k.Decode(alias, Rules{Called: true}); o != nil || !strings.Contains(wrong, "pods of the provider's own") {
		t.Errorf("for the provider's own pods: %+v, %q", o, wrong)
	}
	if o, wrong := k.Decode(alias, Rules{IngressClass: "public", IngressHosts: []string{"example.org"}}); o != nil || !strings.Contains(wrong, "an Ingress would lead strangers") {
		t.Errorf("of a tenant with Ingresses it becomes %v, %q", o, wrong)
	}
	for _, c := range []struct {
		reason, have, want string
		changed, replace   bool
	}{
		{"nothing", alias, alias, false, false},
		{"another one", alias, serviceText(`"type":"ExternalName","externalName":"base.example.com"`), true, false},
		{"it becomes one", serviceText(webPort), alias, true, true},
		{"it ceases to be one", alias, serviceText(webPort), true, true},
	} {
		next, changed, replace := k.Merge(decoded(c.have), decoded(c.want))
		if got := next.(*corev1.Service).Spec.ExternalName; changed != c.changed || replace != c.replace || got != decoded(c.want).Spec.ExternalName {
			t.Errorf("%s: changed %v, replace %v, it means %q", c.reason, changed, replace, got)
		}
	}
}

// TestAlias: what a name of home's is called here, and that none means something of the provider's own.
func TestAlias(t *testing.T) {
	spaces := map[string]string{"shop": "shop-rome", "store": "store-rome"}
	for _, c := range []struct{ reason, name, domain, here, wrong string }{
		{"a name of the world", "base.example.org", "", "base.example.org", ""},
		{"as DNS writes it", "base.example.org.", "milan.internal", "base.example.org", ""},
		{"a Service of home's", "redis.store.svc.cluster.local", "", "redis.store-rome.svc.cluster.local", ""},
		{"at a provider with another domain", "redis.store.svc.cluster.local.", "milan.internal.", "redis.store-rome.svc.milan.internal", ""},
		{"a pod of a headless one", "redis-0.redis.store.svc.cluster.local", "", "redis-0.redis.store-rome.svc.cluster.local", ""},
		{"a namespace that is not here", "redis.bank.svc.cluster.local", "", "", `the namespace "bank" is not offloaded to this provider`},
		{"as the provider calls it", "redis.store-rome.svc.cluster.local", "", "", `the namespace "store-rome" is not offloaded to this provider`},
		{"home itself", "cluster.local", "", "", "means no Service"},
		{"a namespace", "store.svc.cluster.local", "", "", "means no Service"},
		{"a pod by its address", "10-42-0-7.store.pod.cluster.local", "", "", "means no Service"},
		{"the provider's own", "api.kube-system.svc.milan.internal", "milan.internal", "", "a name of the provider's own cluster"},
		{"the provider itself", "milan.internal", "milan.internal", "", "a name of the provider's own cluster"},
		{"one that ends alike", "notcluster.local", "", "notcluster.local", ""},
	} {
		here, wrong := Rules{Spaces: spaces, Domain: c.domain}.alias(c.name)
		if here != c.here || (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q is %q, %q", c.reason, c.name, here, wrong)
		}
	}
}

// TestMergeService: what the provider gave stays.
func TestMergeService(t *testing.T) {
	k := Kinds["Service"]
	decoded := func(fields string) *corev1.Service {
		o, wrong := k.Decode(serviceText(fields), Rules{NodePorts: true})
		if wrong != "" {
			t.Fatal(wrong)
		}
		return o.(*corev1.Service)
	}
	have := decoded(webPort + `,"type":"NodePort"`)
	have.Spec.ClusterIP, have.Spec.ClusterIPs, have.Spec.Ports[0].NodePort = "10.96.7.7", []string{"10.96.7.7"}, 30007
	have.Spec.IPFamilies, have.Spec.IPFamilyPolicy = []corev1.IPFamily{"IPv4"}, new(corev1.IPFamilyPolicySingleStack)
	have.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	for _, c := range []struct {
		reason, want     string
		changed, replace bool
	}{
		{"nothing", webPort + `,"type":"NodePort"`, false, false},
		{"another selector", webPort + `,"type":"NodePort","selector":{"a":"b"}`, true, false},
		{"not from outside any more", webPort, true, false},
		{"a port more", `"type":"NodePort","ports":[{"name":"more","port":81,"targetPort":81},{"name":"web","port":80,"targetPort":8080}]`, true, false},
		{"headless", webPort + `,"headless":true`, true, true},
		{"another family policy", webPort + `,"type":"NodePort","ipFamilyPolicy":"PreferDualStack"`, true, false},
	} {
		next, changed, replace := k.Merge(have, decoded(c.want))
		s := next.(*corev1.Service)
		if changed != c.changed || replace != c.replace || s.Spec.ClusterIP != "10.96.7.7" || len(s.Status.LoadBalancer.Ingress) != 1 {
			t.Errorf("%s: changed %v, replace %v, %+v", c.reason, changed, replace, s.Spec)
		}
		for _, p := range s.Spec.Ports {
			if want := map[bool]int32{true: 30007}[p.Port == 80 && s.Spec.Type == "NodePort"]; p.NodePort != want {
				t.Errorf("%s: the node port of %d is %d", c.reason, p.Port, p.NodePort)
			}
		}
	}
}
