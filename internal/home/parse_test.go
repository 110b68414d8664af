package home

import (
	"encoding/base64"
	"encoding/pem"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestParseDefaults(t *testing.T) {
	got, err := Parse("cluster:\n  name: milan\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Cluster:  Cluster{Name: "milan"},
		Identity: Identity{Type: v1alpha1.CredentialCertificate, Lifetime: metav1.Duration{Duration: 720 * time.Hour}},
		Offer:    Offer{Reserve: "0%", SchedulingTimeout: metav1.Duration{Duration: 10 * time.Second}},
		Network:  Network{Port: 7100},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

const full = `
cluster:
  name: milan
  labels: {topology.kubernetes.io/region: eu-south, provider: acme}
apiServer:
  url: https://198.18.1.10:6443
  proxyURL: http://proxy.example.org:3128
auth: {url: "https://auth.example.org"}
identity: {type: ServiceAccountToken, lifetime: 10m}
offer:
  reserve: 12.5%
  rules:
  - {consumers: [rome, 0b0b0b0b-1111-4222-8333-444444444444], allow: [cpu, memory]}
  - {deny: ["example.com/gpu"]}
  price: {amount: "0.25", currency: EUR, period: Hour}
  schedulingTimeout: 2m
network:
  pods: [10.42.0.0/16, "fd00:42::/56"]
  services: [10.43.0.0/16]
  external: [10.254.7.0/24]
  pools: [10.64.0.0/10]
  reserved: [192.168.0.0/24]
  asIs: ["2001:db8::/32"]
  endpoints: [milan.example.org, "198.51.100.7:7200", "2001:db8::1", "[2001:db8::1]:7100"]
  port: 7300
  service: LoadBalancer
  serviceAnnotations: {service.beta.kubernetes.io/aws-load-balancer-type: external}
tenant:
  podSecurity: restricted
  limits: {enforcement: Hard, namespaces: 3, resources: {cpu: 4, memory: 8Gi}}
  objects: {secrets: 5}
  abandonAfter: 720h
`

func TestParseFull(t *testing.T) {
	got, err := Parse(full)
	if err != nil {
		t.Fatal(err)
	}
	if got.Identity.Lifetime.Duration != 10*time.Minute || len(got.Offer.Rules) != 2 || got.Tenant.Limits.Resources["cpu"] != got.clone().Tenant.Limits.Resources["cpu"] {
		t.Errorf("settings were not read whole: %+v", got)
	}
	if again := got.clone(); cmp.Diff(got, again) != "" {
		t.Errorf("a copy differs: %s", cmp.Diff(got, again))
	}
	again := got.clone()
	again.Network.Pools[0] = "z"
	again.Network.ServiceAnnotations["x"] = "y"
	again.Cluster.Labels["x"], again.Offer.Rules[0].Allow[0], again.Tenant.Objects["secrets"] = "y", "z", 9
	if _, leaked := got.Cluster.Labels["x"]; leaked || len(got.Network.ServiceAnnotations) != 1 || got.Network.Pools[0] == "z" || got.Offer.Rules[0].Allow[0] == "z" || got.Tenant.Objects["secrets"] == 9 {
		t.Error("changing a copy changed the settings")
	}
}

func TestParseMistakes(t *testing.T) {
	cases := []struct {
		reason, text string
		want         []string // a part of each line, in order
	}{
		{"no settings at all still says what is missing", "", []string{"cluster.name: the cluster's name is empty"}},
		{"a list is no settings", "- a\n", []string{"begin with: cluster"}},
		{"a tab is no YAML", "cluster:\n\tname: x\n", []string{"not YAML"}},
		{"the same key twice is a mistake somebody would search for long", "cluster: {name: a}\ncluster: {name: b}\n", []string{"not YAML"}},
		{"a field that nobody reads is named with its path", "cluster: {name: rome, nmae: x}\noffre: {}\n", []string{"cluster.nmae: there is no such field", "offre: there is no such field"}},
		{"a type is named with its field", "cluster: {name: 5}\n", []string{"cluster.name: holds number and must hold a string"}},
		{"a list where there must be one", "cluster: {name: rome}\noffer: {rules: {}}\n", []string{"offer.rules: holds object and must hold a list"}},
		{"durations and amounts are named with their fields, all at once", "cluster: {name: rome}\nidentity: {lifetime: 3 days}\noffer: {schedulingTimeout: 5}\ntenant: {abandonAfter: soon, limits: {resources: {cpu: four}}}\n",
			[]string{"identity.lifetime: \"3 days\" is not a duration", "offer.schedulingTimeout: is not a duration", "tenant.abandonAfter: \"soon\"", "tenant.limits.resources.cpu: \"four\" is not an amount"}},
		{"names are checked as everywhere", "cluster: {name: Rome}\n", []string{"cluster.name: the cluster's name \"Rome\" is not a DNS label"}},
		{"labels under Kubernetes' domains mean something else to a scheduler", "cluster: {name: rome, labels: {kubernetes.io/arch: arm64, node.kubernetes.io/x: b, topology.kubernetes.io/zone: a, x.k8s.io/a: b}}\n",
			[]string{"kubernetes.io/arch belongs to Kubernetes", "node.kubernetes.io/x belongs", "x.k8s.io/a belongs"}},
		{"label keys and values are Kubernetes' own", "cluster: {name: rome, labels: {\"a b\": c, d: \"e f\"}}\n", []string{`"a b" is not a label key`, "the value of d is not a label value"}},
		{"addresses are https, without secrets, queries or impossible ports", "cluster: {name: rome}\napiServer: {url: \"http://x\", proxyURL: \"http://u:p@x:1\"}\nauth: {url: \"https://x:70000\"}\n",
			[]string{"apiServer.url: is not an address; give it as https://HOST:PORT", "apiServer.proxyURL: holds a user or password", "auth.url: the port"}},
		{"the endpoint has a path of its own", "cluster: {name: rome}\nauth: {url: \"https://x/y\"}\n", []string{"auth.url: has a path"}},
		{"a key must not be published", "cluster: {name: rome}\napiServer: {ca: \"-----BEGIN PRIVATE KEY-----\\nAAAA\\n-----END PRIVATE KEY-----\\n\"}\n", []string{"apiServer.ca: holds a PEM block of another type"}},
		{"an authority is PEM", "cluster: {name: rome}\napiServer: {ca: hello}\n", []string{"apiServer.ca: holds no certificate"}},
		{"credentials live as long as Kubernetes can make them", "cluster: {name: rome}\nidentity: {type: Password, lifetime: 9m}\n", []string{"identity.type: \"Password\" is unknown", "identity.lifetime: 9m0s is not between 10m and 8760h"}},
		{"a share has a sign and bounds", "cluster: {name: rome}\noffer: {reserve: 101%}\n", []string{"offer.reserve: \"101%\" is not a share"}},
		{"NaN is no share", "cluster: {name: rome}\noffer: {reserve: NaN%}\n", []string{"offer.reserve"}},
		{"rules say something about somebody", "cluster: {name: rome}\noffer: {rules: [{consumers: [Big Co]}, {allow: [\"c p u\"]}]}\n",
			[]string{"offer.rules[0]: says neither", "offer.rules[0].consumers: \"Big Co\"", "offer.rules[1].allow: \"c p u\" is not a resource"}},
		{"prices are what the offers' schema takes", "cluster: {name: rome}\noffer: {price: {amount: \"1,5\", currency: euro, period: Day}}\n", []string{"offer.price.amount", "offer.price.currency", "offer.price.period"}},
		{"terms are what the tenants' schema takes", "cluster: {name: rome}\ntenant: {state: Gone, podSecurity: none, reachability: all, abandonAfter: 1m, objects: {pods: -1}, limits: {enforcement: Strict, namespaces: -1, resources: {cpu: -1}}}\n",
			[]string{"tenant.state", "tenant.podSecurity", "tenant.reachability", "tenant.abandonAfter: 1m0s is too short; give at least 10m", "tenant.objects.pods", "tenant.limits.enforcement", "tenant.limits.namespaces", "tenant.limits.resources.cpu"}},
		{"ranges are prefixes as they are written, of addresses that hosts have", "cluster: {name: rome}\nnetwork: {pods: [10.42.0.0, 10.42.1.0/16, \"::ffff:10.0.0.0/104\", 10.0.0.0/7], pools: [127.0.0.0/8], reserved: [fe80::/64], port: 80}\n",
			[]string{"network.pods: \"10.42.0.0\" is not a range", "network.pods: 10.42.1.0/16 begins inside the range; write 10.42.0.0/16", "network.pods: ::ffff:10.0.0.0/104 is IPv4 in an IPv6 form",
				"network.pods: 10.0.0.0/7 is larger", "network.pools: 127.0.0.0/8 holds loopback", "network.reserved: fe80::/64 holds", "network.pods: 10.0.0.0/7 overlaps 10.42.1.0/16 of network.pods", "network.port: 80 is not between 1024 and 29000"}},
		{"an address is published once, and services are not", "cluster: {name: rome}\nnetwork: {pods: [10.42.0.0/16], services: [10.42.128.0/17], external: [10.1.0.0/24, 10.2.0.0/24]}\n",
			[]string{"network.external: there are 2 of one family", "network.services: 10.42.128.0/17 overlaps 10.42.0.0/16 of network.pods"}},
		{"endpoints are what a peer can call", "cluster: {name: rome}\nnetwork: {endpoints: [\"a b\", \"x:0\", \"127.0.0.1\", \"https://x\"]}\n",
			[]string{"network.endpoints: \"a b\" is neither", "network.endpoints: \"x:0\" has no port", "network.endpoints: \"127.0.0.1\" is no address", "network.endpoints: \"https://x\""}},
		{"peers take sixteen ranges", "cluster: {name: rome}\nnetwork: {pods: [10.0.0.0/24, 10.0.1.0/24, 10.0.2.0/24, 10.0.3.0/24, 10.0.4.0/24, 10.0.5.0/24, 10.0.6.0/24, 10.0.7.0/24, 10.0.8.0/24, 10.0.9.0/24, 10.0.10.0/24, 10.0.11.0/24, 10.0.12.0/24, 10.0.13.0/24, 10.0.14.0/24, 10.0.15.0/24], external: [10.1.0.0/24]}\n",
			[]string{"network.pods: with network.external there are 17, and peers take at most 16"}},
		{"a tunnel is called by Services that are seen from outside", "cluster: {name: rome}\nnetwork: {service: ClusterIP, serviceAnnotations: {\"a b\": x, pelago.dev/x: v, z: " + strings.Repeat("z", 2049) + "}}\n",
			[]string{"network.service: \"ClusterIP\" is unknown; use LoadBalancer or NodePort, or leave it empty", "network.serviceAnnotations: \"a b\" is not the key", "network.serviceAnnotations: pelago.dev/x belongs to Pelago", "network.serviceAnnotations: the value of z has 2049 bytes, at most 2048"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			got, err := Parse(c.text)
			if err == nil {
				t.Fatalf("was accepted: %+v", got)
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) < len(c.want) {
				t.Fatalf("found %d mistakes, want %d: %s", len(lines), len(c.want), err)
			}
			for i, want := range c.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("mistake %d:\n got %s\nwant %s", i, lines[i], want)
				}
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("cluster: {name: rome}\n")
	f.Add(full)
	f.Add("cluster:\n- 1\nidentity: 5\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err == nil && v1alpha1.CheckClusterName(c.Cluster.Name) != nil {
			t.Errorf("accepted the name %q", c.Cluster.Name)
		}
	})
}

// TestEndlessAmount holds that an amount whose parsing would not end is refused.
func TestEndlessAmount(t *testing.T) {
	text := "cluster: {name: rome}\ntenant: {limits: {resources: {cpu: 1e999999999999}}}\n"
	refused := make(chan error, 1)
	go func() {
		_, err := Parse(text)
		refused <- err
	}()
	select {
	case err := <-refused:
		if err == nil || !strings.Contains(err.Error(), "tenant.limits.resources.cpu") {
			t.Errorf("got %v, want an error that names the field", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("parsing does not end")
	}
}

// TestParseAuthority holds that an authority is bounded by what peers get of it.
func TestParseAuthority(t *testing.T) {
	at := func(pem string) string { return "cluster: {name: rome}\napiServer: {ca: " + strconv.Quote(pem) + "}\n" }
	one := certificates(t, 1)
	many := certificates(t, maxCALength/len(one))
	if len(many) > maxCALength {
		t.Fatalf("%d bytes are too many for this test", len(many))
	}
	if _, err := Parse(at(many)); err != nil {
		t.Error(err)
	}
	// As long lines it is shorter than in lines of 64.
	var lines strings.Builder
	for rest := []byte(certificates(t, maxCALength/len(one)+2)); len(rest) > 0; {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		lines.WriteString("-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(block.Bytes) + "\n-----END CERTIFICATE-----\n")
	}
	if lines.Len() > maxCALength {
		t.Fatalf("%d bytes are too many for this test", lines.Len())
	}
	if _, err := Parse(at(lines.String())); err == nil || !strings.Contains(err.Error(), "as peers get it") {
		t.Errorf("got %v, want a mistake of apiServer.ca", err)
	}
}
