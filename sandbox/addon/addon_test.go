package addon

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/pelago-dev/pelago/sandbox/config"
)

// reference finds images in a manifest.
var reference = regexp.MustCompile(`pelago\.local/[a-z-]+:[0-9.]+`)

var update = flag.Bool("update", false, "rewrite golden files")

const pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

// values fills every field, for a cluster of one family or of both.
func values(families ...string) Values {
	v := Values{
		Domain: "cluster.local", Nodes: 2, MemberlistKey: []byte("0123456789abcdef"),
		MetricsCA: []byte(pem), MetricsCert: []byte(pem), MetricsKey: []byte(pem),
	}
	for _, f := range families {
		if f == "v4" {
			v.DNSAddresses = append(v.DNSAddresses, netip.MustParseAddr("10.43.0.10"))
			v.PodRanges = append(v.PodRanges, netip.MustParsePrefix("10.42.0.0/16"))
			v.ServiceRanges = append(v.ServiceRanges, netip.MustParsePrefix("10.43.0.0/16"))
			v.LoadBalancer = append(v.LoadBalancer, "198.18.0.200-198.18.0.250")
			continue
		}
		v.DNSAddresses = append(v.DNSAddresses, netip.MustParseAddr("fd43::a"))
		v.PodRanges = append(v.PodRanges, netip.MustParsePrefix("fd42::/48"))
		v.ServiceRanges = append(v.ServiceRanges, netip.MustParsePrefix("fd43::/112"))
		v.LoadBalancer = append(v.LoadBalancer, "fd5a:70e1:a90::c8-fd5a:70e1:a90::fa")
	}
	return v
}

var familySets = map[string][]string{
	"v4": {"v4"}, "v6": {"v6"}, "dual": {"v4", "v6"}, "dual, IPv6 first": {"v6", "v4"},
}

// object is what the tests look at in a manifest.
type object struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct{ Name, Namespace string }
	Spec       struct {
		Template struct {
			Spec struct {
				ServiceAccountName string `yaml:"serviceAccountName"`
			}
		}
	}
}

// render returns the objects of an add-on, stage by stage.
func render(t *testing.T, a Addon, v Values) [][]object {
	t.Helper()
	stages, err := a.Manifests(v)
	if err != nil {
		t.Fatal(err)
	}
	var all [][]object
	for _, stage := range stages {
		var objects []object
		for _, document := range stage {
			var o object
			if err := yaml.Unmarshal([]byte(document), &o); err != nil {
				t.Fatalf("%s: %v\n%s", a.Name, err, document)
			}
			objects = append(objects, o)
		}
		all = append(all, objects)
	}
	return all
}

func TestManifestsAreYAMLForEveryFamily(t *testing.T) {
	for name, families := range familySets {
		t.Run(name, func(t *testing.T) {
			for _, a := range all {
				for _, stage := range render(t, a, values(families...)) {
					for _, o := range stage {
						if o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" {
							t.Errorf("%s holds a document without apiVersion, kind or name: %+v", a.Name, o)
						}
					}
				}
			}
		})
	}
}

func TestImagesOfPodsAreListedAndNeverPulled(t *testing.T) {
	for _, a := range all {
		stages, err := a.Manifests(values("v4"))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(slices.Concat(stages...), "---\n")
		used := reference.FindAllString(text, -1)
		slices.Sort(used)
		want := slices.Sorted(slices.Values(a.Images))
		if diff := cmp.Diff(want, slices.Compact(used)); diff != "" {
			t.Errorf("%s: images listed (-) and used (+):\n%s", a.Name, diff)
		}
		if n := strings.Count(text, "image: "); n != strings.Count(text, "imagePullPolicy: Never") {
			t.Errorf("%s: an image has no imagePullPolicy: Never", a.Name)
		}
	}
}

func TestImagesAndPrograms(t *testing.T) {
	programs := map[string]bool{}
	for _, p := range Programs {
		programs[p.Name] = false
		if _, err := os.Stat(filepath.Join("..", p.Modules)); err != nil {
			t.Errorf("program %s: %v", p.Name, err)
		}
		if strings.HasSuffix(p.Source, ".go") {
			if _, err := os.Stat(filepath.Join("..", p.Source)); err != nil {
				t.Errorf("program %s: %v", p.Name, err)
			}
		}
	}
	refs := map[string]bool{}
	for _, image := range Images {
		if refs[image.Ref] {
			t.Errorf("%s is there twice", image.Ref)
		}
		refs[image.Ref] = true
		for _, name := range image.Programs {
			if _, ok := programs[name]; !ok {
				t.Errorf("%s holds program %s, which does not exist", image.Ref, name)
			}
			programs[name] = true
		}
	}
	for name, used := range programs {
		if !used {
			t.Errorf("program %s is in no image", name)
		}
	}
	for _, a := range all {
		for _, ref := range a.Images {
			if !refs[ref] {
				t.Errorf("%s uses %s, which does not exist", a.Name, ref)
			}
		}
	}
}

func TestVersionsAgreeWithModuleFiles(t *testing.T) {
	modules := map[string]string{
		"coredns": "github.com/coredns/coredns", "flannel": "github.com/flannel-io/flannel",
		"metrics-server": "sigs.k8s.io/metrics-server", "local-path-provisioner": "github.com/rancher/local-path-provisioner",
		"metallb-controller": "go.universe.tf/metallb", "metallb-speaker": "go.universe.tf/metallb",
	}
	for _, p := range Programs {
		module := modules[p.Name]
		if module == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join("..", p.Modules))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), module+" v"+p.Version+"\n") && !strings.Contains(string(text), module+" v"+p.Version+" //") {
			t.Errorf("%s: %s does not require %s v%s", p.Name, p.Modules, module, p.Version)
		}
		at := slices.IndexFunc(Images, func(i Image) bool { return slices.Contains(i.Programs, p.Name) })
		if !strings.HasSuffix(Images[at].Ref, ":"+p.Version) {
			t.Errorf("%s is not tagged %s", Images[at].Ref, p.Version)
		}
	}
}

func TestStagesPutFoundationsFirst(t *testing.T) {
	for _, a := range all {
		made := map[string]bool{"kube-system": true}
		kinds := map[string]bool{}
		for at, stage := range render(t, a, values("v4")) {
			for _, o := range stage {
				if ns := o.Metadata.Namespace; ns != "" && !made[ns] {
					t.Errorf("%s: stage %d uses namespace %s before it is made", a.Name, at, ns)
				}
				if strings.HasPrefix(o.APIVersion, "metallb.io/") && !kinds[o.Kind] {
					t.Errorf("%s: stage %d uses kind %s before it is made", a.Name, at, o.Kind)
				}
			}
			for _, o := range stage {
				switch o.Kind {
				case "Namespace":
					made[o.Metadata.Name] = true
				case "CustomResourceDefinition":
					kinds["IPAddressPool"], kinds["L2Advertisement"] = true, true
				}
			}
		}
	}
}

func TestWaitsNameObjectsThatExist(t *testing.T) {
	for _, a := range all {
		have := map[Wait]bool{}
		accounts := map[string]bool{}
		for _, o := range slices.Concat(render(t, a, values("v4"))...) {
			have[Wait{o.Metadata.Namespace, o.Kind, o.Metadata.Name}] = true
			if o.Kind == "ServiceAccount" {
				accounts[o.Metadata.Name] = true
			}
			if name := o.Spec.Template.Spec.ServiceAccountName; name != "" && !accounts[name] {
				t.Errorf("%s: %s runs as %s, which is not made before it", a.Name, o.Metadata.Name, name)
			}
		}
		for _, w := range a.Waits {
			if !have[w] {
				t.Errorf("%s waits for %+v, which it does not make", a.Name, w)
			}
		}
	}
}

func TestFor(t *testing.T) {
	for _, name := range []string{config.AddonDNS, config.AddonMetrics, config.AddonStorage, config.AddonLoadBalancer, config.CNIFlannel} {
		if a, err := For(name); err != nil || a.Name != name {
			t.Errorf("For(%q) = %q, %v", name, a.Name, err)
		}
	}
	_, err := For("dns")
	want := `add-on "dns" does not exist; choose from coredns, metrics-server, local-path, load-balancer, flannel`
	if err == nil || err.Error() != want {
		t.Errorf("For(dns): %v, want %s", err, want)
	}
}

func TestManifestsRefuse(t *testing.T) {
	tests := []struct {
		reason, addon string
		change        func(*Values)
		want          string
	}{
		{"DNS needs an address", config.AddonDNS, func(v *Values) { v.DNSAddresses = nil }, "DNSAddresses has 0 addresses"},
		{"one address per family", config.AddonDNS, func(v *Values) { v.DNSAddresses = append(v.DNSAddresses, v.DNSAddresses[0]) }, "both of one family"},
		{"metrics-server serves TLS", config.AddonMetrics, func(v *Values) { v.MetricsKey = nil }, "MetricsKey is not a PEM text"},
		{"a short key is easy to guess", config.AddonLoadBalancer, func(v *Values) { v.MemberlistKey = []byte("short") }, "MemberlistKey has 5 bytes"},
		{"no range, no addresses", config.AddonLoadBalancer, func(v *Values) { v.LoadBalancer = nil }, "LoadBalancer is empty"},
		{"a range has two ends", config.AddonLoadBalancer, func(v *Values) { v.LoadBalancer = []string{"198.18.0.200"} }, "is not FIRST-LAST"},
		{"a range is not backwards", config.AddonLoadBalancer, func(v *Values) { v.LoadBalancer = []string{"198.18.0.9-198.18.0.1"} }, "is not FIRST-LAST"},
		{"a range cannot smuggle YAML", config.AddonLoadBalancer, func(v *Values) { v.LoadBalancer = []string{"1.1.1.1-1.1.1.2\"]\nx: y"} }, "is not FIRST-LAST"},
		{"flannel needs the pod range", config.CNIFlannel, func(v *Values) { v.PodRanges = nil }, "PodRanges is empty"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			a, err := For(tt.addon)
			if err != nil {
				t.Fatal(err)
			}
			v := values("v4")
			tt.change(&v)
			stages, err := a.Manifests(v)
			if err == nil || !strings.Contains(err.Error(), tt.want) || stages != nil {
				t.Errorf("Manifests() = %d stages, %v, want error with %q", len(stages), err, tt.want)
			}
		})
	}
}

func TestManifestsGolden(t *testing.T) {
	for _, tt := range []struct{ addon, file string }{
		{config.AddonDNS, "coredns.yaml"}, {config.AddonMetrics, "metrics-server.yaml"},
		{config.AddonLoadBalancer, "load-balancer.yaml"}, {config.CNIFlannel, "flannel.yaml"},
	} {
		a, err := For(tt.addon)
		if err != nil {
			t.Fatal(err)
		}
		stages, err := a.Manifests(values("v4", "v6"))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, stage := range stages {
			text.WriteString("# stage\n---\n" + strings.Join(stage, "---\n"))
		}
		path := filepath.Join("testdata", tt.file)
		if *update {
			if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text.String()); diff != "" {
			t.Errorf("%s (run with -update to accept):\n%s", tt.addon, diff)
		}
	}
}
