package cli

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/address"
)

// TestSandboxesAreReachedPastProxies runs in a process of its own, as the environment is read once.
func TestSandboxesAreReachedPastProxies(t *testing.T) {
	urls := []string{
		"https://" + address.Cluster(15, 29).Control().V4.Addr().String() + ":6443",
		"https://[" + address.Cluster(15, 29).Control().V6.Addr().String() + "]:6443",
		"http://" + address.Cluster(0, 0).LoadBalancers()[0][0].String(),
		"https://127.0.0.1:20000", "https://inside.example", "https://outside.example", "http://198.20.0.1",
	}
	if os.Getenv("PELAGO_TEST_PROXIES") != "" {
		if got := program("--version"); got.code != 0 {
			t.Fatalf("the program ends with %+v", got)
		}
		for _, url := range urls {
			request, err := http.NewRequest(http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			proxy, err := http.ProxyFromEnvironment(request)
			fmt.Println("ASKED", url, proxy, err)
		}
		return
	}
	direct, outside := "<nil>", "http://proxy.example:3128"
	for _, c := range []struct {
		reason string
		env    []string
		inside string // what is inside.example reached by
	}{
		{"a proxy for all", nil, outside},
		{"with exceptions", []string{"NO_PROXY=inside.example"}, direct},
		{"in the other spelling", []string{"no_proxy=inside.example"}, direct},
	} {
		c.env = append(c.env, "HTTPS_PROXY="+outside, "http_proxy="+outside, "PELAGO_TEST_PROXIES=1")
		command := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); !strings.HasSuffix(strings.ToLower(name), "_proxy") {
				command.Env = append(command.Env, variable)
			}
		}
		command.Env = append(command.Env, c.env...)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", c.reason, err, out)
		}
		var got, want []string
		for line := range strings.Lines(string(out)) {
			if line, ok := strings.CutPrefix(strings.TrimSpace(line), "ASKED "); ok {
				got = append(got, line)
			}
		}
		for i, by := range []string{direct, direct, direct, direct, c.inside, outside, outside} {
			want = append(want, urls[i]+" "+by+" <nil>")
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}
