package reach

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func three() []Pod {
	nodes, four := Of("192.0.2.1"), []Family{IPv4}
	return []Pod{
		{Name: "home", Cluster: "rome", Home: true, Families: four, Addresses: Of("10.42.0.5"), Seen: map[string]Addresses{"milan": Of("10.81.0.5")},
			Service: Of("10.43.0.1"), Nodes: nodes, NodePort: 30001, Unbalanced: "none here"},
		{Name: "milan", Cluster: "milan", Families: four, Addresses: Of("10.82.0.7"), Seen: map[string]Addresses{"turin": Of("10.84.0.7")}, Service: Of("10.43.0.2"), Nodes: nodes, NodePort: 30002,
			Balancers: Of("198.51.100.2")},
		{Name: "turin", Cluster: "turin", Families: four, Addresses: Of("10.83.0.7"), Service: Of("10.43.0.3"), Nodes: nodes, NodePort: 30003, Unbalanced: "none here", Unasked: "no token"},
	}
}

// wayOf is the target of a way, the first of several.
func wayOf(paths []Path, from, to, by string, family Family) (target string, found bool) {
	for _, p := range paths {
		if p.From == from && p.To == to && p.By == by && (p.Family == family || family == "") {
			if p.Host == "" {
				return "", true
			}
			return p.Target(), true
		}
	}
	return "", false
}

func TestPaths(t *testing.T) {
	paths := Paths("shop", "all", "rome.example", three())
	for _, c := range []struct{ from, to, by, target string }{
		{"home", "milan", "pod address", "10.82.0.7:8080"},
		{"home", "milan", "UDP to pod address", "udp4/10.82.0.7:8080"},
		{"home", "milan", "service address", "10.43.0.2:8080"},
		{"home", "milan", "UDP to service address", "udp4/10.43.0.2:8080"},
		{"home", "turin", "node port", "192.0.2.1:30003"},
		{"home", "milan", "load balancer", "198.51.100.2:8080"},
		{"home", "turin", "load balancer", ""},
		{"home", "milan", "pod name", "milan.all:8080"},
		{"milan", "home", "pod address", "10.81.0.5:8080"},
		{"turin", "home", "pod address", ""},
		{"milan", "home", "full name", "home.shop.svc.rome.example:8080"},
		{"milan", "home", "UDP to service name", "udp4/home:8080"},
		{"milan", "home", "node port", ""},
		{"milan", API, "home's API", "api/kubernetes.default.svc:443"},
		{"turin", "home", "service name", "home:8080"},
		{"turin", "milan", "pod address", "10.84.0.7:8080"},
		{"milan", "turin", "pod address", ""},
		{"milan", "turin", "pod name", "turin.all:8080"},
	} {
		if got, found := wayOf(paths, c.from, c.to, c.by, ""); !found || got != c.target {
			t.Errorf("%s to %s by %s calls %q, want %q: there is one: %t", c.from, c.to, c.by, got, c.target, found)
		}
	}
	untried := map[string]int{}
	for _, p := range paths {
		if p.Untried != "" {
			untried[p.From+" by "+p.By]++
		} else if p.From != "home" && (p.By == "service address" || p.By == "node port" || p.By == "load balancer") {
			t.Errorf("%s calls an address that means something at home only: %+v", p.From, p)
		}
		if p.From == p.To {
			t.Errorf("a pod calls itself: %+v", p)
		}
	}
	if untried["milan by node port"] != 2 || untried["turin by node port"] != 2 || untried["home by load balancer"] != 1 || untried["turin by home's API"] != 1 || len(untried) != 4 {
		t.Errorf("not tried are %v", untried)
	}
	if want := 2*9 + 4*7 + 2; len(paths) != want {
		t.Errorf("%d ways, want %d", len(paths), want)
	}
}

// TestPathsOfNamesakes holds that a peering with the name of this cluster is another cluster.
func TestPathsOfNamesakes(t *testing.T) {
	pods := three()[:2]
	pods[0].Cluster, pods[1].Cluster = "kubernetes", "kubernetes"
	pods[0].Seen = map[string]Addresses{"kubernetes": Of("10.81.0.5")}
	paths := Paths("shop", "all", "rome.example", pods)
	for by, want := range map[string]string{"pod address": "10.81.0.5:8080", "UDP to pod address": "udp4/10.81.0.5:8080"} {
		if got, found := wayOf(paths, "milan", "home", by, ""); !found || got != want {
			t.Errorf("milan calls home by %s at %q, want %q", by, got, want)
		}
	}
	for _, p := range paths {
		if r := Judge(p, Answer{Err: "refused", At: AtConnect}, pods); strings.Contains(r.Remedy, "both are in") {
			t.Errorf("of a way between two clusters it is said: %s", r.Remedy)
		}
	}
}

// TestPathsByFamily holds that clusters that both have two families have ways by each, also where a
// pod lacks the address, and that one alone is enough where the other cluster has no more.
func TestPathsByFamily(t *testing.T) {
	dual := []Family{IPv4, IPv6}
	pods := three()[:2]
	home, milan := &pods[0], &pods[1]
	home.Families, milan.Families = dual, dual
	home.Addresses, milan.Addresses = Of("10.42.0.5", "fd42::5"), Of("10.82.0.7", "fd82::7")
	home.Service, milan.Service = Of("10.43.0.1", "fd43::1"), Of("10.43.0.2", "fd43::2")
	milan.Balancers = Addresses{IPv4: "milan.example.org", IPv6: "milan.example.org"}
	paths := Paths("shop", "all", "rome.example", pods)
	for _, c := range []struct {
		from, by string
		family   Family
		target   string
	}{
		{"home", "pod address", IPv4, "10.82.0.7:8080"},
		{"home", "pod address", IPv6, "[fd82::7]:8080"},
		{"home", "UDP to pod address", IPv6, "udp6/[fd82::7]:8080"},
		{"home", "service address", IPv6, "[fd43::2]:8080"},
		{"home", "service name", IPv4, "tcp4/milan:8080"},
		{"home", "service name", IPv6, "tcp6/milan:8080"},
		{"home", "load balancer", IPv6, "tcp6/milan.example.org:8080"},
		{"milan", "pod name", IPv6, "tcp6/home.all:8080"},
		{"milan", "UDP to service name", IPv6, "udp6/home:8080"},
		{"milan", "pod address", IPv6, ""}, // milan has no view of it
	} {
		to := map[string]string{"home": "milan", "milan": "home"}[c.from]
		if got, found := wayOf(paths, c.from, to, c.by, c.family); !found || got != c.target {
			t.Errorf("%s by %s, %s, calls %q, want %q: there is one: %t", c.from, c.by, c.family, got, c.target, found)
		}
	}
	if _, found := wayOf(paths, "home", "milan", "node port", IPv6); found {
		t.Error("a node without IPv6 is called by it")
	}
	for _, p := range paths {
		if r := Judge(p, Answer{Server: p.To}, pods); p.Host == "" && p.Untried == "" && (!r.Bad() || !strings.Contains(r.Why, "no such address")) {
			t.Errorf("a way without an address is %+v", r)
		}
	}
	milan.Families = []Family{IPv4}
	for _, p := range Paths("shop", "all", "rome.example", pods) {
		if p.Family == IPv6 {
			t.Errorf("milan has no IPv6, and there is %+v", p)
		}
	}
	milan.Families = nil
	if got, found := wayOf(Paths("shop", "all", "rome.example", pods), "home", "milan", "pod address", ""); !found || got != "" {
		t.Error("without a family in common no way fails")
	}
}

func TestJudge(t *testing.T) {
	pods := three()
	way := Path{From: "home", To: "milan", By: "pod address", Host: "10.82.0.7", Port: Port, across: true}
	nowhere, local, untried, toAPI, named := way, way, way, way, way
	untried.Host, untried.Untried = "", "nobody asked"
	toAPI.By, toAPI.To, toAPI.From = "home's API", API, "milan"
	named.network, named.Family = "tcp6", IPv6
	nowhere.Host, local.across = "", false
	for _, c := range []struct {
		reason      string
		path        Path
		answer      Answer
		ok          bool
		why, remedy string
	}{
		{"the right one answers", way, Answer{Server: "milan", Client: "10.42.0.5", Micros: 900}, true, "", ""},
		{"another one answers", way, Answer{Server: "home"}, false, "home answered", "pelago status milan"},
		{"there is no address", nowhere, Answer{}, false, "no such address", "pelago explain peering milan"},
		{"no name", way, Answer{Err: "no such host", At: AtName}, false, "does not resolve", "DNS"},
		{"no connection", way, Answer{Err: "no answer in 8s", At: AtConnect}, false, "no answer", "pelago status milan"},
		{"no connection within a cluster", local, Answer{Err: "refused", At: AtConnect}, false, "refused", "own network"},
		{"nobody asked for it", untried, Answer{}, false, "", ""},
		{"home's API answers", toAPI, Answer{Server: API}, true, "", ""},
		{"another one's does", toAPI, Answer{Err: "x509: unknown authority", At: AtTransfer}, false, "x509", "Home's API"},
		{"no name in one family of two", named, Answer{Err: "no such host", At: AtName}, false, "does not resolve", "where Services have no IPv6"},
		{"small packets only", way, Answer{Err: "no answer", At: AtTransfer}, false, "loses what is large", "MTU"},
	} {
		r := Judge(c.path, c.answer, pods)
		if r.OK != c.ok || !strings.Contains(r.Why, c.why) || !strings.Contains(r.Remedy, c.remedy) || (c.ok || c.path.Untried != "") != (r.Why == "") || r.Bad() != (r.Why != "") {
			t.Errorf("%s: %+v", c.reason, r)
		}
	}
}

// A server and calls to it, and to what is none.
func TestCall(t *testing.T) {
	good := httptest.NewServer(handler("milan"))
	defer good.Close()
	short := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer short.Close()
	nobody := func(network string) string { // a port that is taken, by who speaks to another one
		taken, err := net.Dial(network, good.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = taken.Close() })
		return taken.LocalAddr().String()
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go echo(conn, "milan")
	answers := Call(t.Context(), []string{good.Listener.Addr().String(), short.Listener.Addr().String(), nobody("tcp"), "nobody.invalid:80",
		"udp4/" + conn.LocalAddr().String(), "tcp4/" + good.Listener.Addr().String(), "tcp6/" + good.Listener.Addr().String(), "udp4/" + nobody("udp"), "sctp/" + nobody("udp")})
	for _, i := range []int{4, 5} {
		if a := answers[i]; a.Server != "milan" || a.Client != "127.0.0.1" || a.Err != "" || a.Micros <= 0 {
			t.Errorf("call %d is %+v", i, a)
		}
	}
	for i, at := range map[int]string{6: AtName, 7: AtConnect, 8: AtName} {
		if a := answers[i]; a.At != at || a.Err == "" {
			t.Errorf("call %d that goes wrong at %s says %+v", i, at, a)
		}
	}
	if a := answers[0]; a.Server != "milan" || a.Client != "127.0.0.1" || a.Err != "" || a.Micros <= 0 {
		t.Errorf("who answers is %+v", a)
	}
	for i, at := range []string{AtTransfer, AtConnect, AtName} {
		if a := answers[i+1]; a.At != at || a.Err == "" {
			t.Errorf("a call that goes wrong at %s says %+v", at, a)
		}
	}
	var text bytes.Buffer
	if err := Write(&text, answers); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(text.String(), len(answers)); err != nil || again[0] != answers[0] {
		t.Errorf("read again: %+v, %v", again, err)
	}
	if _, err := Read(text.String(), 1); err == nil {
		t.Error("more answers than calls are taken")
	}
}

// TestAPI holds that only who proves to be home's API server counts, whatever it answers.
func TestAPI(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	dir, at := t.TempDir(), server.Listener.Addr().String()
	good, other := filepath.Join(dir, "good"), filepath.Join(dir, "other")
	if err := errors.Join(os.WriteFile(good, root, 0o600), os.WriteFile(other, []byte("none"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ reason, target, file, err string }{
		{"it is home's", "example.com:443", good, ""},
		{"it has another name", "kubernetes.default.svc:443", good, "x509"},
		{"nothing says who it is", "example.com:443", other, "there is no certificate"},
		{"there is no token", "example.com:443", filepath.Join(dir, "none"), "no such file"},
	} {
		a := api(t.Context(), c.target, at, c.file)
		if !strings.Contains(a.Err, c.err) || (c.err == "") != (a.Server == API) {
			t.Errorf("%s: %+v", c.reason, a)
		}
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, "127.0.0.1:0") }()
	cancel()
	select {
	case err := <-ended:
		if err != nil && !strings.Contains(err.Error(), "canceled") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	if err := Serve(t.Context(), "nowhere"); err == nil {
		t.Error("it listens nowhere")
	}
}

// TestPlaced: where the pod here runs is said of the ways between it and those at a peer whose gateway is known.
func TestPlaced(t *testing.T) {
	home := Pod{Name: "home", Cluster: "rome", Home: true, Node: "rome-1", Gateways: map[string]string{"milan": "rome-1", "oslo": "rome-2"}}
	milan, oslo, turin := Pod{Name: "milan", Cluster: "milan"}, Pod{Name: "oslo", Cluster: "oslo"}, Pod{Name: "turin", Cluster: "turin"}
	nowhere := home
	nowhere.Name, nowhere.Node = "nowhere", ""
	for _, c := range []struct {
		from, to Pod
		want     Place
	}{
		{home, milan, OnGateway}, {milan, home, OnGateway}, {home, oslo, OffGateway}, {oslo, home, OffGateway},
		{home, turin, ""}, {milan, oslo, ""}, {nowhere, milan, ""}, {home, nowhere, ""}, {milan, Pod{Name: API}, ""},
	} {
		r := Judge(Path{From: c.from.Name, To: c.to.Name, Host: "10.81.0.7"}, Answer{Server: c.to.Name}, []Pod{c.from, c.to})
		if r.Gateway != c.want {
			t.Errorf("from %s to %s: %q, want %q", c.from.Name, c.to.Name, r.Gateway, c.want)
		}
	}
}
