package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// inBandFile is a consumer that nobody can call, and a provider. Each has a node that is not
// gateway.
const inBandFile = `clusters:
- name: rome
  nodes: 2
  behindNAT: true
  addons: [coredns, load-balancer]
- name: milan
  nodes: 2
  addons: [coredns, load-balancer]
`

// cutFor is how long the link between clusters in band is cut.
const cutFor = 30 * time.Second

// TestInBand has rome, behind NAT, use milan, of which it reaches nothing but the UDP ports of
// tunnels. The parts share a peering, but for the first one and those from Line on, of which each
// can be run alone.
func TestInBand(t *testing.T) {
	kubetest.RequireClusters(t)
	s := kubetest.Sandbox(t, kubetest.Options{Name: "inband", File: sandboxFile(t, inBandFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	outside := c.bothTook(t)
	c.walled(t)
	b := &inBand{continuum: c, outside: outside}
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Closed", b.closed},
		{"Peer", b.peer},
		{"Shown", b.shown},
		{"Silent", b.silent},
		{"Pods", func(t *testing.T) { mainJob(t, c) }},
		{"Network", func(t *testing.T) { network(t, c) }},
		{"Tokens", func(t *testing.T) { tokens(t, c) }},
		{"OnlyManager", b.onlyManager},
		{"OtherNode", b.otherNode},
		{"Restart", b.restart},
		{"Cut", b.cut},
		{"Unpeer", b.unpeer},
		{"Line", b.line},
		{"YAML", b.objectsAlone},
		{"Both", b.both},
		{"Rights", b.rights},
		{"Numbers", b.numbers},
		{"Soon", b.soon},
		{"Faults", b.faults},
	} {
		if !t.Run(part.name, part.run) && part.name == "Peer" {
			t.Fatal("there is nothing that the other parts could be about")
		}
	}
}

// inBand is a scenario of two clusters of which one reaches the other's UDP ports alone.
type inBand struct {
	*continuum
	// outside is how long the same command took without the tunnel.
	outside time.Duration
	// devices are those of Pelago on each node, and objects those of each cluster, before
	// anybody was peered.
	devices, objects map[string][]string
}

// bothTook peers rome with milan by both kubeconfigs and without a tunnel, and returns how long
// that took.
func (c *continuum) bothTook(t *testing.T) time.Duration {
	t.Helper()
	r := c.TryPelago(t, "rome", "peer", "--remote-kubeconfig", c.Files["milan"])
	if r.Code != 0 {
		t.Fatalf("peering out of band: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	c.Pelago(t, "rome", "unpeer", "milan")
	c.part(t, "rome", "milan")
	return r.Took
}

// peer peers in band with both kubeconfigs, and tells how long that takes. It lasts for the
// parts that follow.
func (b *inBand) peer(t *testing.T) {
	r := b.TryPelago(t, "rome", "peer", "--remote-kubeconfig", b.Files["milan"], "--in-band")
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
	}
	t.Logf("one command to peered: in band %s, out of band %s", r.Took.Round(10*time.Millisecond), b.outside.Round(10*time.Millisecond))
	b.nodeReady(t, "rome", "milan")
	b.introduced(t)
}

// introduced waits until the peering's own tunnel leads, and the invitation's is gone on both sides.
func (b *inBand) introduced(t *testing.T) {
	t.Helper()
	begin := time.Now()
	eventually(t, patience, "the tunnel of the invitation has gone", func() error {
		for _, cluster := range []string{"rome", "milan"} {
			if err := b.withoutOpenings(cluster); err != nil {
				return err
			}
		}
		_, err := b.address()
		return err
	})
	t.Logf("by its own tunnel alone after %s more", time.Since(begin).Round(100*time.Millisecond))
}

// withoutOpenings says which tunnel of an invitation a cluster has still.
func (b *inBand) withoutOpenings(cluster string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var configs v1alpha1.NetworkConfigList
	if err := b.Clients[cluster].List(ctx, &configs, client.InNamespace(v1alpha1.NetworkNamespace)); err != nil {
		return err
	}
	for _, n := range configs.Items {
		return fmt.Errorf("%s has NetworkConfig %s", cluster, n.Name)
	}
	keys, err := get[corev1.Secret](b.continuum, cluster, v1alpha1.NetworkNamespace, v1alpha1.NetworkKeysName)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	for name := range keys.Data {
		if strings.HasPrefix(name, v1alpha1.InvitationPrefix) || strings.HasPrefix(name, v1alpha1.IntroductionPrefix) {
			return fmt.Errorf("%s has the key %s", cluster, name)
		}
	}
	return nil
}

// address is by which rome calls milan.
func (b *inBand) address() (string, error) {
	n, err := get[v1alpha1.NetworkConfig](b.continuum, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkConsumer)
	switch {
	case err != nil:
		return "", err
	case n.Spec.InBand == nil || n.Spec.InBand.Address == "":
		return "", fmt.Errorf("the peering's own tunnel does not lead yet: %+v", n.Spec.InBand)
	}
	return n.Spec.InBand.Address, nil
}

// shown holds what people see of a peering in band.
func (b *inBand) shown(t *testing.T) {
	for _, side := range [][2]string{{"rome", "milan"}, {"milan", "rome"}} {
		if text := b.Pelago(t, side[0], "status"); !strings.Contains(text, "now, in band") {
			t.Errorf("status in %s does not say that %s is heard of in band:\n%s", side[0], side[1], text)
		}
		// The connection has just moved from the invitation's tunnel to the peering's own.
		eventually(t, unreachableLimit, "explain in "+side[0]+" finds nothing broken", func() error {
			if text := b.Pelago(t, side[0], "explain", "peering", side[1]); strings.Contains(text, "✗") {
				return errors.New(text)
			}
			return nil
		})
	}
	if text := b.Pelago(t, "rome", "explain", "peering", "milan"); !strings.Contains(text, "✓ the tunnel leads to the provider") {
		t.Errorf("explain says nothing of the tunnel:\n%s", text)
	}
}

// silent holds that milan's ports answer nobody who has no invitation.
func (b *inBand) silent(t *testing.T) {
	n, err := get[v1alpha1.NetworkConfig](b.continuum, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkProvider)
	if err != nil {
		t.Fatal(err)
	}
	if n.Spec.Port == 0 || len(n.Spec.Endpoints) == 0 {
		t.Fatalf("milan's tunnel is at %v, port %d", n.Spec.Endpoints, n.Spec.Port)
	}
	for _, endpoint := range n.Spec.Endpoints {
		if got := from(t, b.SandboxHandle, "rome", "ping", endpoint, "20", "50ms"); got.Sent == 0 || got.Received > 0 {
			t.Errorf("%s answers %d of %d packets of a stranger", endpoint, got.Received, got.Sent)
		}
	}
}

// spoken says whether somebody who speaks HTTP answers a pod of rome: servers of HTTPS say that
// they are no others.
func (x *crossing) spoken(from *corev1.Pod, host string, port int32) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := x.Exec(ctx, "rome", from.Namespace, from.Name, "sh", "-c",
		fmt.Sprintf("timeout 5 wget -q -O - http://%s/ 2>&1; echo asked", join(host, port)))
	if err == nil && !strings.Contains(out, "asked") {
		err = fmt.Errorf("%q is no end", out)
	}
	return strings.Contains(out, "HTTP/1"), err
}

// onlyManager holds that no pod of rome but the manager's reaches milan by the address that stands
// for it, whichever node it is on.
func (b *inBand) onlyManager(t *testing.T) {
	at, err := b.address()
	if err != nil {
		t.Fatal(err)
	}
	x := &crossing{shop: b.offloaded(t, "rome")}
	for _, node := range []string{"rome-1", "rome-2", "milan"} {
		x.create(t, whoPod("", "on-"+node, node))
	}
	for _, node := range []string{"rome-1", "rome-2"} {
		pod := x.running(t, "on-"+node)
		x.eventually(t, networkLimit, "a pod on "+node+" is answered by rome's own API server", func() error {
			answered, err := x.spoken(pod, "kubernetes.default.svc.cluster.local", 443)
			if err == nil && !answered {
				err = fmt.Errorf("it is not, so that silence means nothing")
			}
			return err
		})
	}
	n, err := get[v1alpha1.NetworkConfig](b.continuum, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkConsumer)
	if err != nil {
		t.Fatal(err)
	}
	for node, host := range map[string]string{"rome-1": at, "rome-2": at, "milan": seen(t, n.Status.Views, at)} {
		pod := x.running(t, "on-"+node)
		for _, port := range []int32{v1alpha1.InBandAPIPort, v1alpha1.InBandAuthPort} {
			if answered, err := x.spoken(pod, host, port); err != nil || answered {
				t.Errorf("a pod on %s that calls %s is answered: %t, %v", node, join(host, port), answered, err)
			}
		}
	}
}

// otherNode holds that rome reaches milan also when its manager and its gateway are on different
// nodes, and when they are on the same one.
func (b *inBand) otherNode(t *testing.T) {
	key := v1alpha1.NetworkKey(v1alpha1.PeeringNamespace("milan"))
	var gateway string
	eventually(t, healLimit, "rome has a gateway", func() (err error) {
		gateway, err = b.gateway("rome", key)
		return err
	})
	for _, each := range []struct {
		name   string
		beside bool
	}{{"Elsewhere", false}, {"SameNode", true}} {
		t.Run(each.name, func(t *testing.T) {
			for _, node := range b.nodes(t, "rome") {
				if (node == gateway) != each.beside {
					b.Kubectl(t, "rome", "cordon", node)
					t.Cleanup(func() { b.Kubectl(t, "rome", "uncordon", node) })
				}
			}
			b.strike(t, "rome")
			var pods corev1.PodList
			if err := b.Clients["rome"].List(t.Context(), &pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": "pelago-manager"}); err != nil {
				t.Fatal(err)
			}
			for _, p := range pods.Items {
				if p.DeletionTimestamp == nil && (p.Spec.NodeName == gateway) != each.beside {
					t.Errorf("%s is on %s, the gateway on %s", p.Name, p.Spec.NodeName, gateway)
				}
			}
			b.works(t)
			if now, err := b.gateway("rome", key); err != nil || now != gateway {
				t.Errorf("the gateway was on %s and is on %s, %v", gateway, now, err)
			}
		})
	}
}

// works holds that rome can use milan.
func (b *inBand) works(t *testing.T) {
	t.Helper()
	b.uses(t, "rome", "milan")
}

// uses holds that a pod which is made at the consumer runs at the provider, and that its log comes
// back.
func (c *continuum) uses(t *testing.T, consumer, provider string) {
	t.Helper()
	c.nodeReady(t, consumer, provider)
	s := c.offloaded(t, consumer, "--pod-offloading-strategy", "Remote")
	s.create(t, s.sleeper("once"))
	if pod := s.running(t, "once"); pod.Spec.NodeName != provider {
		t.Errorf("the pod is on %s", pod.Spec.NodeName)
	}
	s.eventually(t, offloadLimit, "the log of a pod at "+provider+" is read at "+consumer, func() error {
		out, err := s.kubectl(t, "logs", "once")
		if err == nil && !strings.Contains(out, "started") {
			err = fmt.Errorf("it is %q", out)
		}
		return err
	})
}

// cut holds that pods run on while all ways to milan are cut, and that the link's healing is
// enough.
func (b *inBand) cut(t *testing.T) {
	s := b.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.deployment("web", 2))
	pods := s.runningAll(t, "web", 2)
	b.Run(t, "link", "cut", "rome", "milan")
	t.Cleanup(func() { b.Run(t, "link", "heal", "rome", "milan") })
	never(t, cutFor, "a pod is replaced or removed while there is no way to milan", func() (bool, error) {
		now, err := s.pods("web")
		return err == nil && (len(now) != 2 || slices.ContainsFunc(now, func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil || p.UID != pods[0].UID && p.UID != pods[1].UID
		})), err
	})
	if text := b.Pelago(t, "rome", "explain", "peering", "milan"); !strings.Contains(text, "✗ the tunnel leads to the provider") {
		t.Errorf("explain does not say that the tunnel is dead:\n%s", text)
	}
	b.Run(t, "link", "heal", "rome", "milan")
	begin := time.Now()
	eventually(t, patience, "milan is reached again", func() error {
		p, err := get[v1alpha1.Peering](b.continuum, "rome", "", "milan")
		if err == nil {
			if got := condition(p.Status.Conditions, v1alpha1.ConditionReachable); !strings.HasPrefix(got, v1alpha1.ConditionReachable+"=True") {
				err = fmt.Errorf("%s", got)
			}
		}
		return err
	})
	t.Logf("reached again %s after the link was healed", time.Since(begin).Round(100*time.Millisecond))
	for _, p := range s.runningAll(t, "web", 2) {
		if p.UID != pods[0].UID && p.UID != pods[1].UID {
			t.Errorf("%s was replaced", p.Name)
		}
	}
	b.works(t)
}

// restart starts the managers anew, which then have other names.
func (b *inBand) restart(t *testing.T) {
	managersRestart(t, b.continuum)
	isManager := func(object string) bool {
		return strings.HasPrefix(object, "pods./"+v1alpha1.SystemNamespace+"/pelago-manager-")
	}
	for cluster, before := range b.objects {
		now := slices.DeleteFunc(b.continuum.objects(t, cluster), func(o string) bool { return !isManager(o) })
		b.objects[cluster] = append(slices.DeleteFunc(before, isManager), now...)
		slices.Sort(b.objects[cluster])
	}
}

// unpeer holds that nothing is left on either side: no objects, no keys, no devices of gateways.
func (b *inBand) unpeer(t *testing.T) {
	r := b.TryPelago(t, "rome", "unpeer", "milan")
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	t.Logf("unpeer took %s", r.Took.Round(10*time.Millisecond))
	b.left(t)
}

// left holds that both clusters are as they were before they were peered.
func (b *inBand) left(t *testing.T) {
	t.Helper()
	for _, cluster := range []string{"rome", "milan"} {
		b.asBefore(t, cluster, b.objects[cluster])
	}
	b.withoutTunnels(t, healLimit)
}

// withoutTunnels waits until nothing of a tunnel is left in either cluster.
func (b *inBand) withoutTunnels(t *testing.T, limit time.Duration) {
	t.Helper()
	for _, cluster := range []string{"rome", "milan"} {
		eventually(t, limit, cluster+" has no tunnels, keys or gateways", func() error {
			if err := b.withoutOpenings(cluster); err != nil {
				return err
			}
			if keys, err := get[corev1.Secret](b.continuum, cluster, v1alpha1.NetworkNamespace, v1alpha1.NetworkKeysName); err == nil && len(keys.Data) > 0 {
				return fmt.Errorf("there are %d keys", len(keys.Data))
			}
			for _, node := range b.nodes(t, cluster) {
				if now := b.devicesOf(t, cluster, node); !slices.Equal(now, b.devices[node]) {
					return fmt.Errorf("%s has the devices %v, and had %v", node, now, b.devices[node])
				}
			}
			return nil
		})
	}
}

// line holds that the line of generate peer-command --in-band makes a peering, that a second one
// may wait meanwhile, that it works once, and that the provider can end it.
func (b *inBand) line(t *testing.T) {
	t.Cleanup(func() { b.part(t, "rome", "milan") })
	line, other := b.Invite(t, "milan", "--in-band"), b.Invite(t, "milan", "--in-band")
	for _, text := range []string{line, other} {
		if !strings.Contains(text, "--tunnel-endpoint") || strings.Contains(text, "--auth-url") {
			t.Fatalf("the line is %q", text)
		}
	}
	if r := b.Shell(t, "rome", line); r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
	}
	t.Run("Works", b.works) // and takes along what it made
	if r := b.Shell(t, "rome", other); r.Code != 0 || !strings.Contains(r.Errs, "already") {
		t.Errorf("another line: exit %d, %q; want that it was not needed", r.Code, r.Errs)
	}
	var open v1alpha1.InvitationList
	if err := b.Clients["milan"].List(t.Context(), &open); err != nil {
		t.Fatal(err)
	}
	for i := range open.Items {
		if open.Items[i].Status.BoundTo == nil {
			if err := b.Clients["milan"].Delete(t.Context(), &open.Items[i]); err != nil {
				t.Error(err)
			}
		}
	}
	b.introduced(t)
	b.Pelago(t, "milan", "unpeer", "rome")
	eventually(t, patience, "rome has noticed that it is over", func() error {
		if _, err := get[v1alpha1.Peering](b.continuum, "rome", "", "milan"); client.IgnoreNotFound(err) != nil || err == nil {
			return fmt.Errorf("the peering is there, %v", err)
		}
		return nil
	})
	b.left(t)
}
