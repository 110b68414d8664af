package internet

import (
	"encoding/json"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// golden compares a text with testdata/name, or writes it there with -update.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run the test with -update to write it", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}

// impaired is the world with a WAN link and a cut one.
func impaired() Config {
	c := worldConfig()
	c.Links = []Link{
		{A: "milan", B: "oslo", Cut: true},
		{A: "milan", B: "rome", Delay: 50 * time.Millisecond, Loss: 0.01, Rate: 100e6},
	}
	return c
}

func TestConfigSurvivesJSON(t *testing.T) {
	want := impaired()
	var got Config
	if err := json.Unmarshal([]byte(asJSON(t, want)), &got); err != nil {
		t.Fatal(err)
	}
	same := cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	}
	if d := cmp.Diff(want, got, same); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestValidateAccepts(t *testing.T) {
	wide := worldConfig()
	wide.Host.Prefixes = prefixes("198.18.31.0/24", "fd5a:70e1:a90:1f::/64")
	for _, c := range []struct {
		reason string
		config Config
	}{
		{"nothing: the internet before the first cluster", Config{}},
		{"no host", Config{Ports: worldConfig().Ports}},
		{"no links", worldConfig()},
		{"every kind of link", impaired()},
		{"a network of the host that holds public addresses of NAT boxes", wide},
	} {
		if err := c.config.Validate(); err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
}

func TestValidateNamesFieldAndRemedy(t *testing.T) {
	link := func(l Link) func(*Config) { return func(c *Config) { c.Links = []Link{l} } }
	for _, c := range []struct {
		reason string
		spoil  func(*Config)
		want   string
	}{
		{"a name that nft could read as more", func(c *Config) { c.Ports[0].Cluster = `rome" }` }, `ports[0].cluster: "rome\" }" is not a name`},
		{"a name too long for a chain", func(c *Config) { c.Ports[0].Cluster = strings.Repeat("a", 51) }, "at most 50"},
		{"two ports of a cluster", func(c *Config) { c.Ports[1].Cluster = "rome" }, `ports[1].cluster: "rome" has a port already`},
		{"an interface name that Linux refuses", func(c *Config) { c.Ports[0].Interface = "sixteen-letters0" }, "ports[0].interface"},
		{"no interface", func(c *Config) { c.Ports[0].Interface = "" }, `ports[0].interface: "" is not a name`},
		{"an interface for two ports", func(c *Config) { c.Ports[1].Interface = "rome0" }, `ports[1].interface: "rome0" is taken`},
		{"the interface of the host", func(c *Config) { c.Ports[1].Interface = "host0" }, `ports[1].interface: "host0" is taken`},
		{"the name of a WAN device", func(c *Config) { c.Ports[1].Interface = "w1-2" }, "reserved"},
		{"no prefix", func(c *Config) { c.Ports[1].Prefixes = nil }, "ports[1].prefixes: is empty"},
		{"bits outside the mask", func(c *Config) { c.Ports[1].Prefixes = prefixes("198.18.1.1/24") }, "write 198.18.1.0/24"},
		{"everything", func(c *Config) { c.Ports[1].Prefixes = prefixes("::/0") }, "ports[1].prefixes[0]: ::/0 is everything"},
		{"IPv4 in IPv6", func(c *Config) { c.Ports[1].Prefixes = prefixes("::ffff:1.2.3.0/120") }, "write it as IPv4"},
		{"no prefix at all", func(c *Config) { c.Ports[1].Prefixes = []netip.Prefix{{}} }, "is not a prefix"},
		{"the same network twice", func(c *Config) { c.Ports[1].Prefixes = prefixes("198.18.0.0/25") }, "ports[1].prefixes[0]: 198.18.0.0/25 overlaps 198.18.0.0/24 of ports[0].prefixes[0]"},
		{"the host inside a port", func(c *Config) { c.Ports[1].Prefixes = prefixes("198.18.31.254/32") }, "keep the host outside"},
		{"a private network without a way", func(c *Config) { c.Ports[2].Gateway = c.Ports[2].Gateway[:1] }, "ports[2].private[1]: fd5a:70e1:a90:2::/64 has no gateway"},
		{"two gateways of a family", func(c *Config) {
			c.Ports[2].Gateway = romeAt[:1]
			c.Ports[2].Gateway = append(c.Ports[2].Gateway, milanAt...)
		}, "ports[2].gateway[1]: is a second"},
		{"host without interface", func(c *Config) { c.Host.Interface = "" }, "host.interface: is missing"},
		{"host without prefixes", func(c *Config) { c.Host.Prefixes = nil }, "host.prefixes: is empty"},
		{"a link to nowhere", link(Link{A: "rome", B: "turin"}), `links[0].b: there is no cluster "turin"`},
		{"a link in the wrong order", link(Link{A: "rome", B: "milan"}), "alphabetical order"},
		{"a link with itself", link(Link{A: "rome", B: "rome"}), "with itself"},
		{"a link twice", func(c *Config) { c.Links = []Link{{A: "milan", B: "rome"}, {A: "milan", B: "rome", Cut: true}} }, "links[1]: is a second link"},
		{"a delay backwards", link(Link{A: "milan", B: "rome", Delay: -1}), "links[0].delay"},
		{"a delay too long", link(Link{A: "milan", B: "rome", Delay: 11 * time.Second}), "links[0].delay"},
		{"a loss in percent", link(Link{A: "milan", B: "rome", Loss: 5}), "0.1 is one packet in ten"},
		{"no number as loss", link(Link{A: "milan", B: "rome", Loss: math.NaN()}), "links[0].loss"},
		{"a rate too low", link(Link{A: "milan", B: "rome", Rate: 100}), "links[0].rate"},
	} {
		config := worldConfig()
		c.spoil(&config)
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
		}
	}
	config := worldConfig()
	config.Ports[0].Interface, config.Links = "lo", []Link{{A: "milan", B: "rome", Loss: 2}}
	if err := config.Validate(); err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("two mistakes are not both told: %v", err)
	}
}
