package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

const directFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns]
- name: milan
  nodes: 2
  addons: [coredns]
- name: oslo
  nodes: 1
  addons: [coredns]
- name: turin
  nodes: 1
  addons: [coredns]
`

const (
	// directDelay is how far home is from each provider, one way. They are close to each other.
	directDelay = 20 * time.Millisecond
	// pathLimit is how long a path may take: traffic is looked at for a minute.
	pathLimit = 2 * time.Minute
	// endLimit is how long a path may go on that somebody does not allow any more.
	endLimit = 30 * time.Second
	// movedBytes is how much has to take another way for the way to count as that.
	movedBytes = 1 << 20
)

// direct are pods at two providers that talk to each other.
type direct struct {
	crossing
	caller, data, reader *corev1.Pod       // as they are at milan, data at oslo
	address              map[string]string // of the pod at the other provider, by provider
	before               map[string]string // what there is of the network at providers
	busy                 string            // the node of milan's gateway, where no pod is
	mark                 int               // how far the reader had come when its silence was looked at last
}

var talking = []string{"milan", "oslo"}

// TestDirect has pods of rome's at milan and at oslo talk, of which the clusters make a path
// of their own; those at turin, who do not, have none.
func TestDirect(t *testing.T) { inBoth(t, directFile, directHolds) }

func directHolds(t *testing.T, file string) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "direct", File: sandboxFile(t, file), Pelago: true})
	c := newContinuum(t, s, "rome", "milan", "oslo", "turin")
	box(t, s, "milan", "oslo", "turin")
	for _, provider := range append(slices.Clone(talking), "turin") {
		c.peer(t, "rome", provider)
		c.nodeReady(t, "rome", provider)
		if r := c.TryPelago(t, "rome", "peer", "--remote-kubeconfig", c.Files[provider], "--direct-paths"); r.Code != 0 {
			t.Fatalf("allowing direct paths to %s: exit %d\n%s%s", provider, r.Code, r.Out, r.Errs)
		}
		s.Run(t, "link", "set", "rome", provider, "--delay", directDelay.String())
	}
	d := newDirect(c.offloaded(t, "rome"))
	d.busy = d.gatewayOf(t, "milan")
	d.vacate(t, "milan", d.busy) // it is stopped
	d.begin(t, map[string]string{"caller": "milan", "data": "oslo", "silent": "turin"})
	byHome := d.roundTrip(t)
	if paths := d.paths(t); len(paths) > 0 {
		t.Errorf("without traffic there are %v", paths)
	}
	begin := d.read(t)
	t.Run("Made", d.made)
	t.Run("Moved", func(t *testing.T) {
		d.moved(t, begin)
	})
	t.Run("Faster", func(t *testing.T) {
		by := d.roundTrip(t)
		t.Logf("direct: a round trip takes %s by way of home and %s by the path, at %s from home to each provider", byHome, by, directDelay)
		if byHome < 4*directDelay || by > byHome/4 {
			t.Errorf("a round trip takes %s by the path, and %s by way of home", by, byHome)
		}
	})
	t.Run("Shown", d.shown)
	t.Run("Strangers", d.strangers)
	t.Run("Policy", d.policy)
	t.Run("PathCut", d.withoutPath)
	t.Run("Faults", d.faults)
	t.Run("WithoutHome", d.withoutHome)
	t.Run("NotAllowedAtHome", func(t *testing.T) {
		d.ends(t, "rome says no", func() { c.Pelago(t, "rome", "peer", "milan", "--direct-paths=false") })
		c.Pelago(t, "rome", "peer", "milan", "--direct-paths")
		d.made(t)
		d.moves(t, "milan", "oslo")
	})
	t.Run("NotAllowedByProvider", func(t *testing.T) {
		d.ends(t, "oslo says no", func() {
			c.Kubectl(t, "oslo", "patch", "tenant", "rome", "--type", "merge", "-p", `{"spec":{"directPaths":false}}`)
		})
	})
	t.Run("NothingLeft", d.nothingLeft)
}

// newDirect is of pods in a namespace of rome's that is offloaded.
func newDirect(s shop) *direct {
	return &direct{crossing: crossing{shop: s}, address: map[string]string{}}
}

// begin makes pods at providers, by their names, that know each other and say nothing yet: caller
// at milan, data at oslo, and who else there is.
func (d *direct) begin(t *testing.T, at map[string]string) {
	t.Helper()
	c, ways := d.continuum, [][2]string{{"milan", "oslo"}}
	for name, provider := range at {
		if name != "caller" {
			ways = append(ways, [2]string{provider, "milan"})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		d.create(t, whoService(name, name, nil))
		pod := whoPod("", name, at[name])
		pod.Spec.Containers[0].Command[2] = streamLine
		d.create(t, pod)
	}
	pods := map[string]*corev1.Pod{}
	for name := range at {
		d.running(t, name)
	}
	d.eventually(t, 2*networkLimit, "each provider sees the other one's pod", func() (err error) {
		for name, provider := range at {
			if pods[provider], err = get[corev1.Pod](c, "rome", d.name, name); err != nil {
				return err
			}
		}
		for _, way := range ways {
			n, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace(way[0]), v1alpha1.NetworkConsumer)
			if err != nil {
				return err
			}
			if address := pods[way[1]].Status.PodIP; address == "" || !covers(n.Status.Views, address) {
				return fmt.Errorf("%s has no view of %q, the pod at %s; it has %v", way[0], address, way[1], n.Status.Views)
			}
			d.address[way[0]] = seen(t, n.Status.Views, pods[way[1]].Status.PodIP)
		}
		return nil
	})
	var err error
	if d.caller, err = c.twin("milan", pods["milan"]); err != nil {
		t.Fatal(err)
	}
	if d.data, err = c.twin("oslo", pods["oslo"]); err != nil {
		t.Fatal(err)
	}
	d.eventually(t, 3*networkLimit, "the pods answer each other", func() error {
		_, _, here := d.ask("milan", d.caller, d.address["milan"], webPort)
		_, _, there := d.ask("oslo", d.data, d.address["oslo"], webPort)
		return errors.Join(here, there)
	})
	d.before = d.network(t)
}

// moved holds that the stream, which began at a time, goes by the path, unbroken, and that the path
// is of both providers and a node of each.
func (d *direct) moved(t *testing.T, begin time.Time) {
	t.Helper()
	t.Logf("direct: the stream went by the path %s after it had begun", d.moves(t, "milan", "oslo").Sub(begin).Round(100*time.Millisecond))
	d.silence(t, "moving to the path")
	if changed := d.changed(t); !slices.Contains(changed, "oslo") || !slices.Contains(changed, "oslo-1") || len(changed) < 4 {
		t.Errorf("with a path %v are otherwise than without, want both providers and a node of each", changed)
	}
}

// at runs kubectl in a cluster.
func (d *direct) at(t *testing.T, cluster string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return d.Try(ctx, append([]string{"kubectl", cluster, "--"}, args...)...)
}

// paths are the NetworkPaths of all providers, as provider/name.
func (d *direct) paths(t *testing.T) map[string]v1alpha1.NetworkPath {
	t.Helper()
	all := map[string]v1alpha1.NetworkPath{}
	for provider := range d.Clients {
		var list v1alpha1.NetworkPathList
		if err := d.Clients[provider].List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for _, p := range list.Items {
			all[provider+"/"+p.Name] = p
		}
	}
	return all
}

// made waits until the two that talk have a path, one each, and the same; and that nobody else has.
func (d *direct) made(t *testing.T) {
	begin := time.Now()
	d.eventually(t, pathLimit, "the providers whose pods talk have a path", func() error {
		paths := d.paths(t)
		names := slices.Sorted(maps.Keys(paths))
		if len(names) != 2 {
			return fmt.Errorf("there are %v", names)
		}
		milan, name, _ := strings.Cut(names[0], "/")
		if milan != "milan" || names[1] != "oslo/"+name {
			return fmt.Errorf("there are %v", names)
		}
		for _, p := range paths {
			if got := condition(p.Status.Conditions, v1alpha1.ConditionReady); got != "Ready=True(Ready)" {
				return fmt.Errorf("%s: %s %+v", p.Name, got, p.Status)
			}
		}
		return nil
	})
	t.Logf("direct: the path was Ready after %s", time.Since(begin).Round(100*time.Millisecond))
	d.reads(t)
}

// flows are how many bytes have gone between each two clusters, by both names in order.
func (d *direct) flows(t *testing.T) map[[2]string]int64 {
	t.Helper()
	var said struct {
		Flows []struct {
			From, To string
			Bytes    int64
		}
	}
	if err := json.Unmarshal([]byte(d.Run(t, "link", "show", "-o", "json")), &said); err != nil {
		t.Fatal(err)
	}
	all := map[[2]string]int64{}
	for _, f := range said.Flows {
		all[[2]string{min(f.From, f.To), max(f.From, f.To)}] += f.Bytes
	}
	return all
}

// moves holds that the stream goes between two clusters, and hardly anything of it elsewhere. It
// returns since when, at the latest.
func (d *direct) moves(t *testing.T, a, b string) (since time.Time) {
	t.Helper()
	way, base := [2]string{min(a, b), max(a, b)}, d.flows(t)
	begin := time.Now()
	d.eventually(t, 2*networkLimit, "the stream goes between "+a+" and "+b, func() error {
		now := d.flows(t)
		if now[way]-base[way] < movedBytes {
			return fmt.Errorf("%d bytes in %s", now[way]-base[way], time.Since(begin))
		}
		from := base
		base = now
		for _, other := range [][2]string{{"milan", "oslo"}, {"milan", "rome"}, {"oslo", "rome"}} {
			mine := slices.Contains(other[:], "rome") == (way[0] == "rome" || way[1] == "rome")
			if more := now[other] - from[other]; !mine && more > (now[way]-from[way])/4 {
				return fmt.Errorf("%d bytes went between %v, and %d between %v", more, other, now[way]-from[way], way)
			}
		}
		since = time.Now()
		return nil
	})
	d.reads(t)
	return since
}

// shown holds what the command line says of it at either end, and what home is told.
func (d *direct) shown(t *testing.T) {
	for _, provider := range talking {
		var r struct {
			Networks []struct {
				Name        string
				DirectPaths bool
				Paths       []struct {
					Ready bool
					Views []v1alpha1.NetworkView
				}
			}
		}
		out := d.Pelago(t, provider, "status", "-o", "json")
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Networks) != 1 || !r.Networks[0].DirectPaths || len(r.Networks[0].Paths) != 1 || !r.Networks[0].Paths[0].Ready ||
			!covers([]v1alpha1.NetworkView{{Real: r.Networks[0].Paths[0].Views[0].View, View: r.Networks[0].Paths[0].Views[0].View}}, d.address[provider]) {
			t.Errorf("%s says %+v", provider, r.Networks)
		}
		if text := d.Pelago(t, provider, "status"); !strings.Contains(text, "DIRECT PATHS OF") {
			t.Errorf("%s shows no path:\n%s", provider, text)
		}
		d.eventually(t, networkLimit, "home has an event", func() error {
			var events corev1.EventList
			if err := d.Clients["rome"].List(t.Context(), &events, client.InNamespace(metav1.NamespaceDefault)); err != nil {
				return err
			}
			if !slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.InvolvedObject.Name == provider && e.Reason == "DirectPathMade" }) {
				return fmt.Errorf("none of peering %s", provider)
			}
			return nil
		})
	}
}

// ends holds that a path is gone soon once somebody has said so, while the connection goes on by way of home.
func (d *direct) ends(t *testing.T, what string, say func()) {
	begin := time.Now()
	say()
	d.eventually(t, endLimit, what+", and the path is gone", func() error {
		if paths := d.paths(t); len(paths) > 0 {
			return fmt.Errorf("there are %+v", paths)
		}
		return nil
	})
	t.Logf("direct: the path was gone %s after %s", time.Since(begin).Round(100*time.Millisecond), what)
	d.moves(t, "milan", "rome")
	d.silence(t, "moving to home as "+what)
	d.eventually(t, networkLimit, "all that was made for it is gone", func() error { return d.asAtFirst(t) })
}

// network is what each provider has of the network: devices, tables, rules and ports of its nodes,
// and keys.
func (d *direct) network(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, provider := range talking {
		for _, node := range d.nodes(t, provider) {
			all[node] = fmt.Sprintln(d.devicesOf(t, provider, node)) +
				d.Run(t, "run", provider, "--node", node, "--", "sh", "-c", "nft list tables | sort; ip rule; ss -Hlun 'sport >= 7100 and sport <= 8099' | awk '{print $4}' | sort")
		}
		var secrets corev1.SecretList
		if err := d.Clients[provider].List(t.Context(), &secrets, client.InNamespace(v1alpha1.NetworkNamespace)); err != nil {
			t.Fatal(err)
		}
		for _, s := range secrets.Items {
			all[provider] += s.Name + " " + strings.Join(slices.Sorted(maps.Keys(s.Data)), " ") + "\n"
		}
	}
	return all
}

// changed are the nodes and providers whose network is otherwise than before there was a path.
func (d *direct) changed(t *testing.T) (where []string) {
	now := d.network(t)
	for _, each := range slices.Sorted(maps.Keys(d.before)) {
		if now[each] != d.before[each] {
			where = append(where, each)
		}
	}
	return where
}

// asAtFirst says what is otherwise than before there was a path.
func (d *direct) asAtFirst(t *testing.T) error {
	for _, where := range d.changed(t) {
		return fmt.Errorf("%s has\n%s\nand had\n%s", where, d.network(t)[where], d.before[where])
	}
	return nil
}

// nothingLeft ends the pods that talk: no path comes any more, and no object is left of any.
func (d *direct) nothingLeft(t *testing.T) {
	d.reads(t)
	for _, name := range []string{"reader", "caller", "data", "silent"} {
		if out, err := d.kubectl(t, "delete", "pod", name, "--wait=true", "--timeout=3m"); err != nil {
			t.Errorf("deleting %s: %v\n%s", name, err, out)
		}
	}
	if paths := d.paths(t); len(paths) > 0 {
		t.Errorf("there are %v", paths)
	}
	d.eventually(t, networkLimit, "all that was made for paths is gone", func() error { return d.asAtFirst(t) })
}
