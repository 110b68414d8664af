package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// pair is what rome does in a world beside its passage: it peers with milan in band, of which it
// reaches nothing else, and with oslo, and its pods at both talk.
type pair struct {
	*inBand
	talking *direct
	begin   time.Time // of their stream
}

// newPair walls rome off milan, while nobody is peered.
func newPair(t *testing.T, c *continuum) *pair {
	t.Helper()
	p := &pair{inBand: &inBand{continuum: c}}
	c.walled(t)
	t.Run("Walled", p.shut)
	p.note(t)
	return p
}

// talk holds that milan is reached in band alone, and has a pod there read a stream of one at oslo,
// which both owners and rome allow to take a path of its own. They go on when it returns.
func (p *pair) talk(t *testing.T) {
	p.introduced(t)
	p.shut(t)
	if text := p.Pelago(t, "rome", "status"); !strings.Contains(text, "now, in band") {
		t.Errorf("status does not say that milan is heard of in band:\n%s", text)
	}
	line := p.Invite(t, "oslo", "--consumer", "rome", "--direct-paths")
	if r := p.Shell(t, "rome", line+" --direct-paths"); r.Code != 0 {
		t.Fatalf("rome does not become a consumer of oslo: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	p.nodeReady(t, "rome", "oslo")
	p.Pelago(t, "rome", "peer", "milan", "--direct-paths")
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "talk"}} // it goes with the sandbox
	if err := p.Clients["rome"].Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	p.Pelago(t, "rome", "offload", "namespace", n.Name)
	d := newDirect(shop{p.continuum, "rome", n.Name})
	d.begin(t, map[string]string{"caller": "milan", "data": "oslo"})
	if paths := d.paths(t); len(paths) > 0 {
		t.Errorf("without traffic there are %v", paths)
	}
	p.begin = d.read(t)
	d.eventually(t, networkLimit, "the log of a pod at milan is read at rome", func() error {
		out, err := d.logs(t, "reader", 1)
		if err == nil && !strings.HasPrefix(out, "read ") {
			err = fmt.Errorf("it is %q", out)
		}
		return err
	})
	p.talking = d
}

// path holds that those who talk get a path by themselves, and that their connection goes on by it,
// and by way of home again when rome does not allow it any more.
func (p *pair) path(t *testing.T) {
	d := p.talking
	if d == nil {
		t.Fatal("nobody talks")
	}
	d.silence(t, "links were slow")
	d.made(t)
	d.moved(t, p.begin)
	d.ends(t, "rome says no", func() { p.Pelago(t, "rome", "peer", "milan", "--direct-paths=false") })
}

// unpeered holds that rome and milan part in band, after rome and oslo, and have nothing of each
// other afterwards, while others are peered with milan.
func (p *pair) unpeered(t *testing.T) {
	for _, provider := range []string{"oslo", "milan"} {
		if r := p.TryPelago(t, "rome", "unpeer", provider); r.Code != 0 {
			t.Fatalf("unpeer %s: exit %d\n%s%s", provider, r.Code, r.Out, r.Errs)
		}
	}
	for cluster, peer := range map[string]string{"rome": "milan", "milan": "rome"} {
		eventually(t, passageLimit, cluster+" has nothing of "+peer+" any more", func() error {
			return p.without(t, cluster, peer)
		})
	}
	for _, node := range p.nodes(t, "rome") {
		eventually(t, healLimit, node+" has no tunnels", func() error {
			if now := p.devicesOf(t, "rome", node); !slices.Equal(now, p.devices[node]) {
				return fmt.Errorf("it has the devices %v, and had %v", now, p.devices[node])
			}
			return nil
		})
	}
}

// without says what a cluster has of a peer that it did not have before. The namespaces of passages
// stay, with what their owner made in them.
func (p *pair) without(t *testing.T, cluster, peer string) error {
	t.Helper()
	if err := p.withoutOpenings(cluster); err != nil {
		return err
	}
	keys, err := get[corev1.Secret](p.continuum, cluster, v1alpha1.NetworkNamespace, v1alpha1.NetworkKeysName)
	if err != nil {
		return err
	}
	for name := range keys.Data {
		if strings.Contains(name, peer) {
			return fmt.Errorf("there is the key %s", name)
		}
	}
	for _, o := range p.continuum.objects(t, cluster) {
		if strings.Contains(o, peer) && !strings.Contains(o, "/at-"+peer) && !slices.Contains(p.objects[cluster], o) {
			return fmt.Errorf("there is %s", o)
		}
	}
	return nil
}

// shut holds that rome reaches neither milan's API server nor its authentication endpoint, at no
// address of its first node's.
func (b *inBand) shut(t *testing.T) {
	t.Helper()
	now := statusOf(t, b.SandboxHandle)
	service, err := get[corev1.Service](b.continuum, "milan", v1alpha1.SystemNamespace, v1alpha1.AuthService)
	if err != nil {
		t.Fatal(err)
	}
	dials := map[string]string{now.api(t, "milan"): "API server"}
	for _, address := range now.node(t, "milan", "milan-1").Addresses {
		dials[join(address, service.Spec.Ports[0].NodePort)] = "authentication endpoint"
	}
	for address, what := range dials {
		if got := from(t, b.SandboxHandle, "rome", "dial", address).Dial; got != "timeout" {
			t.Errorf("rome dials milan's %s at %s: %s, want timeout", what, address, got)
		}
	}
}

// note notes the devices and objects of both clusters, while nobody is peered.
func (b *inBand) note(t *testing.T) {
	t.Helper()
	b.devices, b.objects = map[string][]string{}, map[string][]string{}
	for _, cluster := range []string{"rome", "milan"} {
		b.objects[cluster] = b.continuum.objects(t, cluster)
		for _, node := range b.nodes(t, cluster) {
			b.devices[node] = b.devicesOf(t, cluster, node)
		}
	}
}
