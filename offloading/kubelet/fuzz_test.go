package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/offloading/stats"
)

// answering answers every request with one answer.
type answering struct{ res *http.Response }

func (a answering) RoundTrip(*http.Request) (*http.Response, error) { return a.res, nil }

// FuzzAnswer: of what a provider answers, only the headers of a stream come back, and a
// refusal is one short line with a code that refuses.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "Content-Type", "text/html", []byte("<script>"), false)
	f.Add(101, "Upgrade", "websocket", []byte(""), true)
	f.Add(101, "Set-Cookie", "a=b", []byte(""), false)
	f.Add(404, "Location", "https://elsewhere", []byte(`{"kind":"Status","message":"no\u001b[2J\u202e\nmore"}`), true)
	f.Add(302, "Location", "/", []byte(""), false)
	f.Add(999, "X", "y", bytes.Repeat([]byte("\xff"), 5000), false)
	may := []string{"Connection", "Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "X-Stream-Protocol-Version", "Content-Type", "X-Content-Type-Options"}
	f.Fuzz(func(t *testing.T, code int, name, value string, body []byte, upgrade bool) {
		header := http.Header{}
		header.Set(name, value)
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://milan.example", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := clean{rt: answering{&http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(body))}}, upgrade: upgrade}.RoundTrip(r)
		if err != nil {
			var refused refusal
			if !errors.As(err, &refused) || refused.code < 400 || refused.code > 599 || refused.text == "" || len(refused.text) > maxText {
				t.Fatalf("%v", err)
			}
			for _, r := range refused.text {
				if !unicode.IsPrint(r) {
					t.Fatalf("%U in %q", r, refused.text)
				}
			}
			return
		}
		if upgrade != (res.StatusCode == 101) || !upgrade && res.StatusCode != 200 {
			t.Fatalf("%d passes, upgrade %t", res.StatusCode, upgrade)
		}
		for name, values := range res.Header {
			if !strings.Contains(" "+strings.Join(may, " ")+" ", " "+name+" ") || len(values) != 1 || len(values[0]) > maxValue {
				t.Fatalf("%s: %q comes back", name, values)
			}
		}
		if !upgrade && res.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Fatalf("comes back as %s", res.Header.Get("Content-Type"))
		}
	})
}

// FuzzHeaders: of what a caller sends, only what belongs to a stream goes to the provider,
// and no token.
func FuzzHeaders(f *testing.F) {
	f.Add("Upgrade", "websocket", "Authorization", "Bearer x", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9rZW4")
	f.Add("keep-alive, upgrade", "SPDY/3.1", "X-Stream-Protocol-Version", "v4.channel.k8s.io", strings.Repeat("channel.k8s.io,", 50))
	f.Add("", "h2c", "Cookie", "a", "portforward.k8s.io")
	f.Fuzz(func(t *testing.T, connection, upgrade, name, value, offered string) {
		in := http.Header{"Connection": {connection}, "Upgrade": {upgrade}, "Sec-Websocket-Protocol": {offered}}
		in.Set(name, value)
		kind := upgradeOf(in)
		out := headers(in, kind)
		for name, values := range out {
			switch name {
			case "User-Agent", "Accept":
			case "Connection", "Upgrade", "Sec-Websocket-Key", "Sec-Websocket-Version":
				if kind == "" || len(values) != 1 {
					t.Fatalf("%s: %q without an upgrade", name, values)
				}
			case "Sec-Websocket-Protocol", "X-Stream-Protocol-Version":
				for _, v := range values {
					if len(values) > 16 || len(v) > 64 || strings.HasPrefix(v, "base64url.bearer.") || !strings.HasSuffix(v, ".k8s.io") {
						t.Fatalf("%s: %q goes to the provider", name, v)
					}
				}
			default:
				t.Fatalf("%s goes to the provider", name)
			}
		}
	})
}

var metric = regexp.MustCompile(`^[a-z_]+(\{(container="web",)?namespace="shop",pod="web-0"\})? [0-9.e+-]+( -?[0-9]+)?$`)

// FuzzUsage: whatever a provider says that pods use, the metrics are well formed, of this
// node's pods and containers, and the sum of the node does not fall.
func FuzzUsage(f *testing.F) {
	f.Add([]byte(`[{"metadata":{"uid":"u"},"containers":[{"name":"web","cpuCoreNanoSeconds":5000000000,"cpuTime":"2026-01-01T00:00:00Z","workingSetBytes":7}]}]`),
		[]byte(`[{"metadata":{"uid":"u"},"containers":[{"name":"web","cpuCoreNanoSeconds":4000000000}]}]`))
	f.Add([]byte(`[{"metadata":{"uid":"u"},"containers":[{"name":"a\"} 1\nx{a=\""},{"name":"web","cpuNanoCores":18446744073709551615},{"name":"web","workingSetBytes":18446744073709551615}]}]`),
		[]byte(`[{"metadata":{"uid":"v"}},{"metadata":{"uid":"u"}},{"metadata":{"uid":"u"}}]`))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: "u"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web"}}}}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var node usage
		before := 0.0
		for _, text := range [][]byte{first, second} {
			var said []stats.Pod
			if json.Unmarshal(text, &said) != nil {
				return
			}
			r := report{at: time.Unix(1_800_000_000, 0)}
			r.sum(map[string]*corev1.Pod{"u": pod}, said, &node)
			if r.cpuSeconds < before {
				t.Fatalf("the node's time falls from %g to %g", before, r.cpuSeconds)
			}
			before = r.cpuSeconds
			seen := map[string]bool{}
			for line := range strings.SplitSeq(strings.TrimSuffix(string(r.metrics(false)), "\n"), "\n") {
				name, _, _ := strings.Cut(line, " ")
				if strings.HasPrefix(line, "# ") {
					continue
				}
				if seen[name] || !metric.MatchString(line) {
					t.Fatalf("%q is no metric, or comes twice", line)
				}
				seen[name] = true
			}
			if _, err := json.Marshal(r.summary("milan")); err != nil {
				t.Fatal(err)
			}
		}
	})
}
