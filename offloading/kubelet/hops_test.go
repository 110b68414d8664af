package kubelet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// hops are two stages in a row: the provider of the first is a cluster whose API server asks the
// second one's virtual node, where the pod went onward, as it asks any kubelet.
func hops(t *testing.T, last http.Handler) (first, second *stage) {
	t.Helper()
	second = newStage(t, last)
	second.store.pods[0].Namespace, second.store.tenants = "shop-rome", map[string]string{"shop-rome": "rome"}
	second.store.shadows[podUID].Status.Ref = &v1alpha1.PodRef{Namespace: "deep", Name: "web-0", UID: "y"}
	proxy := &httputil.ReverseProxy{Transport: second.caller(t, second.may).Transport, FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) {
		part, q := p.In.URL.Path[strings.LastIndex(p.In.URL.Path, "/")+1:], p.In.URL.Query()
		to := url.Values{}
		for from, name := range map[string]string{"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"} {
			if q.Get(from) == "true" {
				to.Set(name, "1")
			}
		}
		to["command"] = q["command"]
		path := "/" + part + "/shop-rome/web-0/" + q.Get("container")
		switch part {
		case "log":
			path, to = "/containerLogs/shop-rome/web-0/"+q.Get("container"), url.Values{}
			for _, name := range []string{"tailLines", "follow", "previous"} {
				if q.Has(name) {
					to.Set(name, q.Get(name))
				}
			}
		case "portforward":
			path = "/portForward/shop-rome/web-0"
		}
		at, err := url.Parse(second.url(path))
		if err != nil {
			t.Error(err)
		}
		at.RawQuery = to.Encode()
		p.Out.URL, p.Out.Host = at, at.Host
	}}
	return newStage(t, proxy), second
}

// TestTwoHops: logs, commands and ports of a pod that went onward, by way of the cluster between,
// and no word of the last one where it fails.
func TestTwoHops(t *testing.T) {
	p := &provider{}
	first, second := hops(t, p)
	p.set(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path, " ", r.URL.RawQuery) })
	const logs = "/containerLogs/shop/web-0/web"
	if code, text := do(t, first.caller(t, first.may), "GET", first.url(logs+"?tailLines=3"), ""); code != 200 || text != "/api/v1/namespaces/deep/pods/web-0/log container=web&tailLines=3" {
		t.Errorf("logs: %d %q", code, text)
	}
	p.set(echo)
	for _, path := range []string{"/exec/shop/web-0/web?command=sh&input=1&output=1", "/attach/shop/web-0/web?output=1", "/portForward/shop/web-0"} {
		res, conn, in := first.upgrade(t, "POST", path, "SPDY/3.1", nil)
		if res.StatusCode != http.StatusSwitchingProtocols {
			text, _ := io.ReadAll(in)
			t.Errorf("%s: %d %s", path, res.StatusCode, text)
			continue
		}
		const line = "there and back\n"
		if _, err := io.WriteString(conn, line); err != nil {
			t.Fatal(err)
		}
		if got, err := bufio.NewReader(in).ReadString('\n'); got != line || err != nil {
			t.Errorf("%s: %q, %v", path, got, err)
		}
		if seen := p.last(); !strings.HasPrefix(seen.URL.Path, "/api/v1/namespaces/deep/pods/web-0/") {
			t.Errorf("%s: asked for %s", path, seen.URL)
		}
		_ = conn.Close()
	}

	answer := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, text) }
	}
	shadow := second.store.shadows[podUID]
	for _, c := range []struct {
		reason string
		change func()
		code   int
		want   string
	}{
		{"plain words", func() { p.set(answer(400, `container "web" in pod "web-0" is waiting to start: ContainerCreating`)) }, 400,
			`container "web" in pod "web-0" is waiting to start: ContainerCreating`},
		{"its rights", func() {
			p.set(answer(403, `pods "web-0" is forbidden: User "pelago:rome" cannot get resource "pods/log" in the namespace "deep"`))
		}, 403,
			"the cluster that runs the pod refused: Forbidden"},
		{"plain at first", func() {
			p.set(answer(500, `container "web" of pod web-0_deep(0b6a) at https://oslo.example:6443/x`))
		}, 500, "the cluster that runs the pod refused: Internal Server Error"},
		{"a pod that is not there", func() { p.set(answer(404, `pods "web-0" not found`)) }, 404, "the cluster that runs the pod refused: Not Found"},
		{"not made yet", func() { shadow.Status.Ref = nil }, 400, `container "web" in pod "web-0" is waiting to start: the cluster has not made it yet`},
		{"refused in its words", func() {
			shadow.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Reason: "NotAdmitted", Message: "quota oslo of deep"}}
		}, 400, `container "web" in pod "web-0" is waiting to start: it has not been made there yet`},
		{"not known there", func() { delete(second.store.shadows, podUID) }, 400, `container "web" in pod "web-0" is waiting to start: it is not known to the cluster yet`},
		{"a name that leads elsewhere", func() {
			second.store.shadows[podUID] = shadow
			shadow.Status.Ref = &v1alpha1.PodRef{Namespace: "a/../b", Name: "web-0"}
		}, 502, `the cluster names no valid pod for "web-0"`},
		{"it does not answer", func() {
			shadow.Status.Ref = &v1alpha1.PodRef{Namespace: "deep", Name: "web-0"}
			second.link.err = errors.New("away")
		}, 500, "the cluster that runs the pod does not answer; try again later"},
		{"no peering", func() { second.link.removed = true }, 500, "there is no connection to the cluster, which runs the pods of its node"},
		{"no such pod", func() { second.store.pods = nil }, 404, `pod "web-0" does not exist on its node`},
	} {
		second.store.mu.Lock()
		c.change()
		second.store.mu.Unlock()
		if code, text := do(t, first.caller(t, first.may), "GET", first.url(logs), ""); code != c.code || text != c.want {
			t.Errorf("%s: %d %q, want %d %q", c.reason, code, text, c.code, c.want)
		}
	}
}
