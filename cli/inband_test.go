package cli

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/internal/status"
)

var tunnelPattern = regexp.MustCompile(`^pelago peer milan --cluster-id ` + id1 + ` --tunnel-key ` + regexp.QuoteMeta(publicKey) + ` (.*)--ca-sha256 [0-9a-f]{64} --token ([A-Za-z0-9_-]{43})\n$`)

// network switches the network on, without its agents.
func (s *stage) network() {
	s.t.Helper()
	labels := map[string]string{"a": "b"}
	if err := s.c.Create(s.t.Context(), newNamespace(v1alpha1.NetworkNamespace)); client.IgnoreAlreadyExists(err) != nil {
		s.t.Fatal(err)
	}
	s.create(&appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}},
	})
}

// tunnels plays pelago-manager: each Invitation in band gets a tunnel that is called at these
// endpoints, and one that is over loses it.
func (s *stage) tunnels(endpoints ...string) (stop func()) {
	return s.play(func(ctx context.Context) {
		var invitations v1alpha1.InvitationList
		var configs v1alpha1.NetworkConfigList
		if s.c.List(ctx, &invitations) != nil || s.c.List(ctx, &configs, client.InNamespace(v1alpha1.NetworkNamespace)) != nil {
			return
		}
		open := map[string]bool{}
		for _, i := range invitations.Items {
			if i.Spec.InBand == nil {
				continue
			}
			name := v1alpha1.InvitationPrefix + i.Name
			open[name] = true
			s.c.Create(ctx, &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: name}, Spec: v1alpha1.NetworkConfigSpec{
				PublicKey: publicKey, Endpoints: endpoints, Port: 7100, InBand: &v1alpha1.NetworkInBand{PublicKey: i.Spec.InBand.PublicKey},
			}})
		}
		for i := range configs.Items {
			if n := &configs.Items[i]; !open[n.Name] {
				s.c.Delete(ctx, n)
			}
		}
	})
}

// onlyInvitation is the Invitation there is, nil if there is none.
func (s *stage) onlyInvitation() *v1alpha1.Invitation {
	s.t.Helper()
	var list v1alpha1.InvitationList
	if err := s.c.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	switch len(list.Items) {
	case 0:
		return nil
	case 1:
		return &list.Items[0]
	}
	s.t.Fatalf("there are %d invitations, want one at most", len(list.Items))
	return nil
}

// TestGenerateInBand holds that an invitation in band has the public half of its token's key, and
// that its line names the tunnel, and no address of the API server or of pelago-auth.
func TestGenerateInBand(t *testing.T) {
	s := newStage(t, 0)
	s.install("milan", id1)
	// Neither is needed in band.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"config.yaml":"cluster: {name: milan}\n"}}`))
	if err := s.c.Patch(t.Context(), newConfigMap(v1alpha1.ConfigName), patch); err != nil {
		t.Fatal(err)
	}
	s.drop(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.AuthService}})

	got := s.run("generate", "peer-command", "--in-band")
	if got.code != 1 || got.out != "" || !strings.Contains(got.err, "the network of milan") || !strings.Contains(got.err, "--set network.enabled=true") || s.onlyInvitation() != nil {
		t.Errorf("with the network off: %+v", got)
	}
	s.network()
	for _, c := range []struct {
		reason    string
		endpoints []string
		line      string
		note      bool
	}{
		{"one node", []string{"192.0.2.1:7100"}, "--tunnel-endpoint 192.0.2.1:7100 ", false},
		{"the likeliest of many", []string{"192.0.2.5:7100", "[2001:db8::1]:7100", "192.0.2.2:7100", "milan.example:7100", "192.0.2.1:7100"},
			"--tunnel-endpoint 192.0.2.5:7100 --tunnel-endpoint [2001:db8::1]:7100 --tunnel-endpoint 192.0.2.2:7100 --tunnel-endpoint milan.example:7100 ", true},
	} {
		stop := s.tunnels(c.endpoints...)
		got := s.run("generate", "peer-command", "--in-band", "--consumer", "rome")
		match := tunnelPattern.FindStringSubmatch(got.out)
		if got.code != 0 || match == nil || match[1] != c.line || strings.Contains(got.out, "--auth-url") {
			t.Fatalf("%s: %+v", c.reason, got)
		}
		if strings.Contains(got.err, match[2]) || strings.Contains(got.err, "4 of the 5") != c.note {
			t.Errorf("%s: the hints are %q", c.reason, got.err)
		}
		i := s.onlyInvitation()
		_, public, err := v1alpha1.InBandKey(match[2])
		if err != nil || i == nil || i.Spec.InBand == nil || i.Spec.InBand.PublicKey != public || i.Spec.TokenSHA256 != v1alpha1.TokenHash(match[2]) || i.Spec.Consumer != "rome" {
			t.Errorf("%s: %v, the invitation is %+v", c.reason, err, i)
		}
		if text, _ := json.Marshal(i); strings.Contains(string(text), match[2]) {
			t.Errorf("%s: the invitation holds the token", c.reason)
		}
		s.forget()

		got = s.run("generate", "peer-command", "--in-band", "-o", "yaml")
		documents := strings.Split(got.out, "---\n")
		var peering v1alpha1.Peering
		if len(documents) != 2 || yaml.UnmarshalStrict([]byte(documents[1]), &peering) != nil || peering.Spec.Consume.InBand == nil || peering.Spec.Consume.AuthURL != "" ||
			peering.Spec.Consume.InBand.PublicKey != publicKey || strings.Join(peering.Spec.Consume.InBand.Endpoints, " ") != strings.Join(c.endpoints, " ") {
			t.Errorf("%s: as manifests: %+v", c.reason, got)
		}
		s.create(&peering) // the API server takes it
		stop()
		s.forget()
		s.swept()
	}
}

// swept removes the tunnels that are left.
func (s *stage) swept() {
	s.t.Helper()
	if err := s.c.DeleteAllOf(s.t.Context(), &v1alpha1.NetworkConfig{}, client.InNamespace(v1alpha1.NetworkNamespace)); err != nil {
		s.t.Fatal(err)
	}
	s.sweep()
}

// TestGenerateInBandFails holds that an invitation nobody could use is taken back.
func TestGenerateInBandFails(t *testing.T) {
	s := newStage(t, 0)
	s.install("milan", id1)
	s.network()
	for _, c := range []struct{ reason, endpoint, want string }{
		{"an endpoint that a shell would act upon", "$(reboot):7100", "correct config.network.endpoints"},
	} {
		stop := s.tunnels(c.endpoint)
		if got := s.run("generate", "peer-command", "--in-band"); got.code != 1 || got.out != "" || !strings.Contains(got.err, c.want) || s.onlyInvitation() != nil {
			t.Errorf("%s: %+v, left %v", c.reason, got, s.onlyInvitation())
		}
		stop()
		s.swept()
	}
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		stop := s.play(func(context.Context) {
			if s.invitations() > 0 {
				cancel()
			}
		})
		got := programWith(ctx, nil, "generate", "peer-command", "--in-band", "--kubeconfig", s.access.Kubeconfig)
		stop()
		if got.code != 1 || !strings.Contains(got.err, "interrupted while making the tunnel of the invitation was not done: there is no NetworkConfig invitation-invitation-") || s.onlyInvitation() != nil {
			t.Errorf("%+v, left %v", got, s.onlyInvitation())
		}
	})
}

// TestUncalled says for each way in which nobody could call a tunnel what to do.
func TestUncalled(t *testing.T) {
	s := newStage(t, 0)
	s.install("milan", id1)
	s.network()
	c, err := Connect(s.access)
	if err != nil {
		t.Fatal(err)
	}
	const tunnel = "invitation-x"
	for _, one := range []struct {
		reason       string
		made         bool
		said         string
		service      corev1.ServiceType
		there        corev1.ServiceType
		says, remedy string
	}{
		{"nobody makes it", false, "", "", "", "there is no NetworkConfig invitation-x in namespace pelago-network", "pelago status"},
		{"no node has an address", true, "", "", "", "no node that may be gateway has an address", "get pods -o wide, or say where others call it"},
		{"its Service is not there", true, "", corev1.ServiceTypeLoadBalancer, "", "its Service tunnel-invitation-x is not there", "--set 'config.network.endpoints=[HOST]'"},
		{"the load balancer gives nothing", true, "", corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, "the load balancer has given its Service tunnel-invitation-x no address", "describe service tunnel-invitation-x"},
		{"of another type", true, "", corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP, "its Service tunnel-invitation-x has no address", "describe service"},
		{"its name is taken", true, "Service tunnel-invitation-x is somebody else's", corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, "Service tunnel-invitation-x is somebody else's", "describe service"},
	} {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: "tunnel-" + tunnel}, Spec: corev1.ServiceSpec{Type: one.there, Ports: []corev1.ServicePort{{Port: 7100, Protocol: corev1.ProtocolUDP}}}}
		if one.there != "" {
			s.create(service)
		}
		settings, err := c.settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		settings.Network.Service = one.service
		var made *v1alpha1.NetworkConfig
		if one.made {
			made = &v1alpha1.NetworkConfig{}
		}
		if one.said != "" {
			status.False(&made.Status.Conditions, 0, v1alpha1.ConditionReady, v1alpha1.ReasonNameTaken, one.said)
		}
		if says, remedy := c.uncalled(t.Context(), tunnel, made, settings.Network); says != one.says || !strings.Contains(remedy, one.remedy) {
			t.Errorf("%s: %q; %q, want %q and %q", one.reason, says, remedy, one.says, one.remedy)
		} else if _, value, found := strings.Cut(remedy, "--set "); found { // what it says to do can be done
			value = strings.ReplaceAll(strings.Trim(value, "'"), "HOST", "198.51.100.7")
			if got := s.run("install", "--dry-run", "--set", value); got.code != 0 || !strings.Contains(got.out, "198.51.100.7") {
				t.Errorf("%s: %s: %d, %s", one.reason, remedy, got.code, got.err)
			}
		}
		if one.there != "" {
			s.drop(service)
		}
	}
}

// tunnelArgs are the line of an invitation in band.
func tunnelArgs(token string, more ...string) []string {
	return append([]string{"peer", "milan", "--cluster-id", id1, "--tunnel-key", publicKey, "--tunnel-endpoint", "milan.example:7100", "--ca-sha256", hash, "--token", token}, more...)
}

// TestPeerInBand goes from the line to the end of a peering in band.
func TestPeerInBand(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	if got := s.run(tunnelArgs(whole)...); got.code != 1 || !strings.Contains(got.err, "the network of this cluster") || s.peering("milan") != nil || len(s.tokens()) > 0 {
		t.Fatalf("with the network off: %+v", got)
	}
	s.network()
	down := []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonTunnelDown, "nothing comes back"), isNot(v1alpha1.ConditionReady, v1alpha1.ReasonTunnelDown, "nothing comes back")}
	stop := s.manager(func(*v1alpha1.Peering) []metav1.Condition { return down })
	if got := s.run(tunnelArgs(whole, "--timeout", "2s")...); got.code != 1 || !strings.Contains(got.err, "peering with milan is not done after 2s: proving the invitation (TunnelDown: nothing comes back); Pelago goes on trying") {
		t.Errorf("a tunnel that does not lead anywhere: %+v", got)
	}
	p := s.peering("milan")
	if p == nil || p.Spec.Consume.InBand == nil || p.Spec.Consume.AuthURL != "" || p.Spec.Consume.InBand.PublicKey != publicKey || strings.Join(p.Spec.Consume.InBand.Endpoints, " ") != "milan.example:7100" {
		t.Fatalf("the Peering is %+v", p)
	}
	if got := s.run("explain", "peering", "milan"); got.code != 0 || !strings.Contains(got.out, "✗ the tunnel leads to the provider") || !strings.Contains(got.out, "milan.example:7100") {
		t.Errorf("explain of a dead tunnel: %+v", got)
	}
	if got := s.run("status"); got.code != 0 || !strings.Contains(got.out, "pelago explain peering milan") || !strings.Contains(got.out, "in band") {
		t.Errorf("status of a dead tunnel: %+v", got)
	}
	other := strings.ReplaceAll(whole, "M", "N")
	for _, c := range []struct {
		reason string
		args   []string
	}{
		{"another invitation", tunnelArgs(other)},
		{"a line out of band", peerArgs(id1)},
	} {
		if got := s.run(c.args...); got.code != 1 || !strings.Contains(got.err, "begun in band") || !strings.Contains(got.err, "pelago unpeer milan --force, then the line again") {
			t.Errorf("%s: %+v", c.reason, got)
		}
	}
	stop()
	stop = s.manager(func(*v1alpha1.Peering) []metav1.Condition { return well() })
	s.again("milan")
	if got := s.run(tunnelArgs(whole, "--default-request=false")...); got.code != 0 || got.out != "Peered with milan.\n" {
		t.Errorf("the same line again: %+v", got)
	}
	got := s.run("unpeer", "milan", "--force")
	if got.code != 0 || got.out != "Peering milan is gone.\n" || !strings.Contains(got.err, "milan was told once, through the tunnel") || !strings.Contains(got.err, "its owner removes that with: pelago unpeer rome") {
		t.Errorf("forcing the end: %+v", got)
	}
	stop()
	s.sweep()
}

// again has the manager look at a Peering once more.
func (s *stage) again(name string) {
	s.t.Helper()
	p := s.peering(name)
	p.Status.Conditions, p.Status.ObservedGeneration = nil, 0
	if err := s.c.Status().Update(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

// TestPeerBothInBand has one command make both sides in band, and both directions.
func TestPeerBothInBand(t *testing.T) {
	rome, milan := newStage(t, 0), newStage(t, 1)
	rome.install("rome", id2)
	milan.install("milan", id1)
	rome.network()
	milan.network()
	work := func(*v1alpha1.Peering) []metav1.Condition { return well() }
	for _, c := range []struct {
		reason string
		more   []string
		out    string
		back   bool
	}{
		{"one direction", nil, "Peered with milan.\n", false},
		{"both", []string{"--bidirectional"}, "Peered with milan.\nmilan uses this cluster as rome.\n", true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			stops := []func(){rome.manager(work), milan.manager(work), rome.tunnels("192.0.2.1:7100"), milan.tunnels("192.0.2.2:7100", "192.0.2.3:7100")}
			got := rome.run(append([]string{"peer", "--remote-kubeconfig", milan.access.Kubeconfig, "--in-band"}, c.more...)...)
			if got.code != 0 || got.out != c.out {
				t.Errorf("%+v, want %q", got, c.out)
			}
			if p := rome.peering("milan"); p == nil || p.Spec.Consume.InBand == nil || len(p.Spec.Consume.InBand.Endpoints) != 2 {
				t.Errorf("the Peering here is %+v", p)
			}
			if i := milan.onlyInvitation(); i == nil || i.Spec.InBand == nil {
				t.Errorf("the Invitation there is %+v", i)
			}
			p := milan.peering("rome")
			if (p != nil) != c.back || c.back && (p.Spec.Consume.InBand == nil || p.Spec.Consume.InBand.Endpoints[0] != "192.0.2.1:7100") {
				t.Errorf("the Peering there is %+v", p)
			}
			for _, stop := range stops {
				stop()
			}
			for _, s := range []*stage{rome, milan} {
				s.forget()
				s.swept()
			}
		})
	}
}

// TestWay holds what is told of the tunnel to a provider, by what agents say of it.
func TestWay(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1, Consume: &v1alpha1.Consume{InBand: &v1alpha1.InBand{PublicKey: publicKey}}}}
	c, err := Connect(s.access)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	look := func() chain.Way {
		t.Helper()
		w, err := c.way(t.Context(), p, now)
		if err != nil || w == nil {
			t.Fatalf("%v, %v", w, err)
		}
		return *w
	}
	if got := look(); got != (chain.Way{Off: true}) {
		t.Errorf("with the network off: %+v", got)
	}
	s.network()
	since, holder := metav1.NewTime(now.Add(-time.Minute)), "a"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.NetworkNamespace, Name: "rome-1"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, RenewTime: &metav1.MicroTime{Time: now}}}
	s.create(lease)
	up := v1alpha1.TunnelReport{Alive: true, Since: &since, Endpoint: "192.0.2.1:7100"}
	dead := v1alpha1.TunnelReport{Since: &since, Endpoint: "192.0.2.1:7101"}
	for _, one := range []struct {
		reason string
		said   map[string]v1alpha1.TunnelReport
		want   chain.Way
	}{
		{"nothing is known yet", nil, chain.Way{}},
		{"the invitation's is sought", map[string]v1alpha1.TunnelReport{"introduction-milan": {Endpoint: "192.0.2.1:7100"}}, chain.Way{Evidence: "the invitation's, from node rome-1 to 192.0.2.1:7100"}},
		{"the invitation's leads", map[string]v1alpha1.TunnelReport{"introduction-milan": up, "peering-milan": dead}, chain.Way{Up: true, Evidence: "the invitation's, from node rome-1 to 192.0.2.1:7100"}},
		{"the peering's own leads", map[string]v1alpha1.TunnelReport{"introduction-milan": dead, "peering-milan": up}, chain.Way{Up: true, Evidence: "the peering's own, from node rome-1 to 192.0.2.1:7100"}},
		{"both are dead", map[string]v1alpha1.TunnelReport{"introduction-milan": dead, "peering-milan": dead}, chain.Way{Dead: true, Evidence: "the invitation's, from node rome-1 to 192.0.2.1:7101"}},
		{"it is dead", map[string]v1alpha1.TunnelReport{"peering-milan": dead, "peering-oslo": up}, chain.Way{Dead: true, Evidence: "the peering's own, from node rome-1 to 192.0.2.1:7101"}},
		{"it has no device", map[string]v1alpha1.TunnelReport{"peering-milan": {Problem: "no port", Since: &since}}, chain.Way{Dead: true, Evidence: "the peering's own, from node rome-1: no port"}},
	} {
		text, err := json.Marshal(one.said)
		if err != nil {
			t.Fatal(err)
		}
		lease.Annotations = map[string]string{v1alpha1.AnnotationTunnels: string(text)}
		if err := s.c.Update(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if got := look(); got != one.want {
			t.Errorf("%s: %+v, want %+v", one.reason, got, one.want)
		}
	}
	p.Spec.Consume.InBand = nil
	if w, err := c.way(t.Context(), p, now); w != nil || err != nil {
		t.Errorf("of a provider that is called by its address: %v, %v", w, err)
	}
}

// TestStatusInBand holds of which clusters status says that they are spoken with in band.
func TestStatusInBand(t *testing.T) {
	tunnel, address := &v1alpha1.Consume{InBand: &v1alpha1.InBand{}}, &v1alpha1.Consume{AuthURL: "https://milan.example:30443"}
	provide := &v1alpha1.Provide{Tenant: "rome"}
	for _, c := range []struct {
		reason string
		spec   v1alpha1.PeeringSpec
		tenant bool
		want   bool
	}{
		{"a provider that is called in band", v1alpha1.PeeringSpec{Consume: tunnel}, false, true},
		{"a provider that is called by its address", v1alpha1.PeeringSpec{Consume: address}, false, false},
		{"a consumer that came in band", v1alpha1.PeeringSpec{Provide: provide}, true, true},
		{"a consumer that did not", v1alpha1.PeeringSpec{Provide: provide}, false, false},
		{"both: what is used decides", v1alpha1.PeeringSpec{Consume: address, Provide: provide}, true, false},
	} {
		s := &snapshot{peerings: []v1alpha1.Peering{{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: c.spec}}}
		s.tenants = []v1alpha1.Tenant{{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: v1alpha1.TenantSpec{InBand: c.tenant}}}
		r := s.report(time.Now())
		if r.Peerings[0].InBand != c.want || r.Tenants[0].InBand != c.tenant {
			t.Errorf("%s: the peering %t, want %t; the tenant %t, want %t", c.reason, r.Peerings[0].InBand, c.want, r.Tenants[0].InBand, c.tenant)
		}
	}
}
