package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/cli"
)

// captureShows holds that both owners see the packets of a pod at milan that rome's front calls,
// each by the addresses of his own, and nothing of what they say.
func captureShows(t *testing.T, x *crossing) {
	at := x.data[0]
	twin, err := x.twin("milan", at)
	if err != nil {
		t.Fatal(err)
	}
	const count = 40 // some calls' worth, as answers may be late
	for _, side := range []struct {
		cluster   string
		pod       *corev1.Pod
		peer, far string
		calls     string // the direction in which front calls
	}{
		{"rome", at, "milan", x.front.Status.PodIP, "to"},
		{"milan", twin, "rome", seen(t, x.rome, x.front.Status.PodIP), "from"},
	} {
		r := x.captured(t, side.cluster, side.pod, fmt.Sprint("--count=", count), "--output=json")
		var directions []string
		for line := range strings.Lines(r) {
			var p cli.Packet
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				t.Fatalf("%s says %q: %v", side.cluster, line, err)
			}
			from, to := p.From, p.To
			if p.Direction != side.calls {
				from, to = to, from
			}
			near := net.JoinHostPort(side.pod.Status.PodIP, fmt.Sprint(webPort))
			if host, _, err := net.SplitHostPort(from); err != nil || host != side.far || to != near || p.Peer != side.peer || p.Protocol != "TCP" || p.Bytes < 40 {
				t.Errorf("%s sees %+v; front is %s there and calls %s", side.cluster, p, side.far, near)
			}
			directions = append(directions, p.Direction)
		}
		if len(directions) != count || !slices.Contains(directions, "to") || !slices.Contains(directions, "from") {
			t.Errorf("%s sees packets %v, want %d both ways", side.cluster, directions, count)
		}
	}
	const said = "/cgi-bin/who"
	for _, whole := range []bool{false, true} {
		name := filepath.Join(t.TempDir(), "front.pcapng")
		x.captured(t, "rome", x.front, "--count=20", fmt.Sprint("--whole=", whole), "--write="+name)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if has := bytes.Contains(text, []byte(said)); has != whole || len(text) < 20*60 {
			t.Errorf("of what front says is something in the file of %d bytes: %t, want %t", len(text), has, whole)
		}
	}
}

// captured is what "pelago capture" prints while front calls data-0 again and again.
func (x *crossing) captured(t *testing.T, cluster string, pod *corev1.Pod, args ...string) string {
	t.Helper()
	done := make(chan struct{})
	var out string
	go func() {
		defer close(done)
		r := x.TryPelago(t, cluster, append([]string{"capture", pod.Name, "--namespace", pod.Namespace, "--for", patience.String()}, args...)...)
		if out = r.Out; r.Code != 0 {
			t.Errorf("pelago capture %s at %s ends with %d: %s%s", pod.Name, cluster, r.Code, r.Out, r.Errs)
		}
	}()
	for {
		select {
		case <-done:
			return out
		default:
			_, _, _ = x.ask("rome", x.front, x.data[0].Status.PodIP, webPort) // that it does is held elsewhere
		}
	}
}
