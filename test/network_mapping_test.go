package test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/netns"
)

// outsideServer and outsideServer6 are where the server is that is no part of a cluster, behind a
// node at the address before. It listens at webPort, and at webPort+1, which nobody lists.
const (
	outsideServer  = "203.0.113.50"
	outsideServer6 = "fd50::2"
	outsideDevice  = "outside0"
)

// outside is a machine of its own beside a node: a network namespace with an address, and a way
// back by the node alone. It says who calls, until its input ends, with which all of it goes.
func outside(address string, in io.Reader, out io.Writer) error {
	at, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}
	node := at.Prev()
	host, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return err
	}
	defer host.Close()
	space, err := netns.New()
	if err != nil {
		return err
	}
	defer space.Close()
	here, err := netns.Netlink(host)
	if err != nil {
		return err
	}
	defer here.Close()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: outsideDevice}, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(space.Fd()))}
	if err := here.LinkAdd(veth); err != nil {
		return fmt.Errorf("making a device: %w", err)
	}
	defer func() { _ = here.LinkDel(veth) }()
	there, err := netns.Netlink(space)
	if err != nil {
		return err
	}
	defer there.Close()
	for _, end := range []struct {
		kernel       *netlink.Handle
		name, prefix string
	}{{here, outsideDevice, netip.PrefixFrom(node, at.BitLen()-2).String()}, {there, "eth0", netip.PrefixFrom(at, at.BitLen()-2).String()}} {
		link, err := end.kernel.LinkByName(end.name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(end.prefix)
		if err != nil {
			return err
		}
		if at.Is6() {
			a.Flags = unix.IFA_F_NODAD // it is listened at at once
		}
		if err := end.kernel.AddrAdd(link, a); err != nil {
			return fmt.Errorf("giving %s an address: %w", end.name, err)
		}
		if err := end.kernel.LinkSetUp(link); err != nil {
			return err
		}
	}
	if err := there.RouteAdd(&netlink.Route{Gw: node.AsSlice()}); err != nil {
		return fmt.Errorf("adding the way back: %w", err)
	}
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprintln(w, host, "database")
		if r.URL.Path == "/cgi-bin/forever" {
			for r.Context().Err() == nil {
				fmt.Fprintln(w, "still there")
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		}
	})
	for _, port := range []int32{webPort, webPort + 1} {
		var listener net.Listener
		if err := netns.In(space, func() (err error) {
			listener, err = net.Listen("tcp", join(address, port))
			return err
		}); err != nil {
			return err
		}
		defer listener.Close()
		go func() { _ = http.Serve(listener, who) }()
	}
	fmt.Fprintln(out, "listening")
	_, err = io.Copy(io.Discard, in)
	return err
}

func ipMapping(t *testing.T, c *continuum) { mappingHolds(t, c, outsideServer) }

// mappingHolds gives a server outside of rome's pod network to a namespace, whose pods at milan reach
// it by a Service, at the port listed; nobody else at milan does, and nobody does who may not be
// given it.
func mappingHolds(t *testing.T, c *continuum, server string) {
	node := netip.MustParseAddr(server).Prev().String()
	x := &crossing{shop: c.offloaded(t, "rome", "--cluster-selector", "region=north")}
	startServer(t, c.SandboxHandle, "rome", "outside", server)
	o := &v1alpha1.IPMapping{ObjectMeta: metav1.ObjectMeta{Name: "database"}, Spec: v1alpha1.IPMappingSpec{
		Address: server, Ports: []v1alpha1.IPMappingPort{{Name: "http", Port: webPort}}}}
	x.create(t, o)
	x.mapping(t, "database", v1alpha1.ReasonNotMappable)
	kubelet := netip.MustParseAddr(x.addresses(t, "rome")[0])
	one, around := netip.PrefixFrom(netip.MustParseAddr(server), kubelet.BitLen()), netip.PrefixFrom(kubelet, kubelet.BitLen()-16).Masked()
	c.settings(t, "rome", func(values map[string]any) {
		section, _ := values["network"].(map[string]any)
		if section == nil {
			section = map[string]any{}
		}
		section["mappable"], values["network"] = []string{one.String(), around.String()}, section
	})
	external := x.mapping(t, "database", v1alpha1.ReasonReady).Status.Address
	x.create(t, &v1alpha1.IPMapping{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: v1alpha1.IPMappingSpec{
		Address: kubelet.String(), Ports: []v1alpha1.IPMappingPort{{Name: "kubelet", Port: 10250}}}})
	x.mapping(t, "node", v1alpha1.ReasonNotMappable)

	x.create(t, onto(x.sleeper("away"), "milan"))
	x.create(t, onto(x.sleeper("home"), "rome-1"))
	away, home := x.running(t, "away"), x.running(t, "home")
	x.reaches(t, home, "database", webPort, "", "database")
	x.reaches(t, away, "database", webPort, node, "database")

	// What stands for it at milan is of no use to others there.
	twin, err := c.twin("milan", away)
	if err != nil {
		t.Fatal(err)
	}
	view := ""
	x.eventually(t, networkLimit, "milan has the slice", func() error {
		list := &discoveryv1.EndpointSliceList{}
		if err := c.Clients["milan"].List(t.Context(), list, client.InNamespace(twin.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: "database"}); err != nil {
			return err
		}
		if len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 {
			return fmt.Errorf("there are %d slices", len(list.Items))
		}
		view = list.Items[0].Endpoints[0].Addresses[0]
		return nil
	})
	if view == server {
		t.Errorf("at milan it is %s, and not what stands for %s", view, external)
	}
	x.reaches(t, away, view, webPort, node, "database")
	if _, who, err := x.ask("rome", away, view, webPort+1); err == nil {
		t.Errorf("a port that is not listed reaches %s", who)
	}
	other := &crossing{shop: c.offloaded(t, "rome", "--cluster-selector", "region=north")}
	other.create(t, onto(other.sleeper("away"), "milan"))
	other.misses(t, "rome", other.running(t, "away"), view)
	there := c.shop(t, "milan")
	there.create(t, onto(there.sleeper("stranger"), "milan-1"))
	(&crossing{shop: there}).misses(t, "milan", there.running(t, "stranger"), view)

	// Connections end with the mapping.
	x.create(t, onto(x.script("reader", fmt.Sprintf(`while ! wget -q -O - http://database:%d/cgi-bin/who; do sleep 1; done
wget -q -O /dev/null http://database:%d/cgi-bin/forever; echo ended; trap 'exit 0' TERM; while true; do sleep 0.2; done`, webPort, webPort)), "milan"))
	x.running(t, "reader")
	x.eventually(t, networkLimit, "the reader reads", func() error {
		out, err := x.kubectl(t, "logs", "reader")
		if err == nil && !strings.Contains(out, node+" database") { // else it says that there is no such name yet
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	if err := c.Clients["rome"].Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	x.eventually(t, networkLimit, "the reader's connection has ended", func() error {
		out, err := x.kubectl(t, "logs", "reader")
		if err == nil && !strings.Contains(out, "ended") {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	t.Logf("a connection ended %s after its mapping", time.Since(begin).Round(100*time.Millisecond))
	x.misses(t, "rome", away, view)
}

// mapping waits for what becomes of a mapping.
func (x *crossing) mapping(t *testing.T, name, reason string) *v1alpha1.IPMapping {
	t.Helper()
	var o *v1alpha1.IPMapping
	x.eventually(t, networkLimit, fmt.Sprintf("the mapping %s is %s", name, reason), func() (err error) {
		if o, err = get[v1alpha1.IPMapping](x.continuum, "rome", x.name, name); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != reason {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	return o
}
