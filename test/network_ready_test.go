package test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// dialLine connects to each address that it reads, and says how that ended and how many microseconds it took,
// the beginning of a program, which a busy machine may make long, left aside. Who drops the first packet is
// found out: the next one is sent after a second.
const dialLine = `while read -r address; do
said=$(timeout 30 bash -c 'a=$EPOCHREALTIME; exec 3<>/dev/tcp/'"$address"'; ended=$?; b=$EPOCHREALTIME; echo "$ended $((${b/./} - ${a/./}))"' 2>&1 | tail -n 1); echo "${said:-no answer}"; done`

// firstPacket is how long it takes to connect at most, if the first packet arrives.
const firstPacket = 900 * time.Millisecond

// dialer connects from rome's node, without the time that it takes to begin a program there.
type dialer struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func newDialer(t *testing.T, c *continuum) *dialer {
	t.Helper()
	cmd := c.Command(context.WithoutCancel(t.Context()), "run", "rome", "--", "bash", "-c", dialLine)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return &dialer{in, bufio.NewReader(out)}
}

// dial connects once, and says how long that took.
func (d *dialer) dial(address string) (time.Duration, error) {
	if _, err := fmt.Fprintln(d.in, address); err != nil {
		return 0, err
	}
	line, err := d.out.ReadString('\n')
	if err != nil {
		return 0, err
	}
	var ended int
	var micros int64
	if _, err := fmt.Sscan(line, &ended, &micros); err != nil || ended != 0 {
		return 0, fmt.Errorf("the first connection to %s: %s", address, strings.TrimSpace(line))
	}
	return time.Duration(micros) * time.Microsecond, nil
}

// waves is how often pods are called until all first packets arrive in time: two processors on which
// twenty pods begin may hold any packet up.
const waves = 3

// readyIsReachable has pods at milan called from rome in the instant in which they are seen to be
// Ready: every first connection passes.
func readyIsReachable(t *testing.T, x *crossing) {
	called, beside := newDialer(t, x.continuum), newDialer(t, x.continuum)
	there := fmt.Sprintf("%s/%d", x.data[0].Status.PodIP, webPort)
	if _, err := beside.dial(there); err != nil {
		t.Fatalf("a pod that is there for long: %v", err)
	}
	for wave := range waves {
		late := x.wave(t, fmt.Sprint("at-once-", wave), func(address string) error {
			var other time.Duration
			done := make(chan error)
			go func() {
				var err error
				other, err = beside.dial(there)
				done <- err
			}()
			took, err := called.dial(address)
			wrong := <-done
			if err != nil && wrong == nil && other <= firstPacket/2 {
				t.Errorf("%v; one to a pod that is there for long took %s", err, other) // no machine is to blame
				return nil
			}
			if err == nil && took > firstPacket && (wrong != nil || other > firstPacket/2) {
				t.Logf("the first connection to %s took %s, and one to a pod that is there for long %s, %v", address, took, other, wrong)
				return nil
			}
			if err == nil && took > firstPacket {
				err = fmt.Errorf("the first connection to %s took %s, as when its first packet is lost; one to a pod that is there for long %s", address, took, other)
			}
			return err
		})
		if late == nil {
			return
		}
		t.Logf("wave %d: %v", wave, late)
		if wave == waves-1 {
			t.Errorf("in each of %d waves pods were Ready that could not be called; in the last: %v", waves, late)
		}
	}
}

// wave has twenty pods called as soon as each is Ready, and returns what went wrong. The pods are gone then.
func (x *crossing) wave(t *testing.T, name string, call func(address string) error) (wrong error) {
	t.Helper()
	const many = 20
	mine := []client.DeleteAllOfOption{client.InNamespace(x.name), client.MatchingLabels{"called": name}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	events, err := x.Clients["rome"].Watch(ctx, &corev1.PodList{}, client.InNamespace(x.name), client.MatchingLabels{"called": name})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for i := range many {
		p := whoPod("", fmt.Sprintf("%s-%d", name, i), "milan")
		p.Labels["called"] = name
		x.create(t, p)
	}
	waited, called := map[string]time.Time{}, map[string]bool{}
	var longest time.Duration
	for len(called) < many {
		event, open := <-events.ResultChan()
		p, ok := event.Object.(*corev1.Pod)
		if !open || !ok && event.Type != watch.Bookmark {
			t.Fatalf("the watch ended after %d of %d pods: %v", len(called), many, event)
		}
		if !ok || called[p.Name] || p.Status.PodIP == "" {
			continue
		}
		if waited[p.Name].IsZero() {
			waited[p.Name] = time.Now()
		}
		if isReady(p) != nil {
			continue
		}
		called[p.Name] = true
		longest = max(longest, time.Since(waited[p.Name]))
		if err := call(fmt.Sprintf("%s/%d", p.Status.PodIP, webPort)); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", p.Name, err))
		}
	}
	t.Logf("%d pods were called as soon as they were Ready, at most %s after they had an address", many, longest.Round(time.Millisecond))
	if err := x.Clients["rome"].DeleteAllOf(t.Context(), &corev1.Pod{}, mine...); err != nil {
		t.Error(err)
	}
	x.eventually(t, goneLimit, "the pods of "+name+" are gone", func() error {
		var left corev1.PodList
		err := x.Clients["rome"].List(t.Context(), &left, client.InNamespace(x.name), client.MatchingLabels{"called": name})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d are left", len(left.Items))
		}
		return err
	})
	return wrong
}

// tunnelCut holds that what is behind a tunnel is not ready soon after the tunnel's packets alone are lost, on
// both sides, and is again when they are not, while the API servers reach each other all the time.
func tunnelCut(t *testing.T, c *continuum) {
	x := &crossing{shop: c.offloaded(t, "rome")}
	for name, node := range map[string]string{"near": "rome-1", "far": "milan"} {
		x.create(t, whoService(name, name, nil))
		x.create(t, whoPod("", name, node))
	}
	x.running(t, "near")
	twin, err := c.twin("milan", x.running(t, "far"))
	if err != nil {
		t.Fatal(err)
	}
	behind := func(want int) func() error {
		return func() error {
			for cluster, at := range map[string][2]string{"rome": {x.name, "far"}, "milan": {twin.Namespace, "near"}} {
				s, err := get[corev1.Service](c, cluster, at[0], at[1])
				if err == nil {
					err = readyBehind(c, cluster, s, want)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
	x.eventually(t, networkLimit, "each side has a pod of the other one behind a Service", behind(1))
	milan, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkProvider)
	if err != nil {
		t.Fatal(err)
	}
	nodes := c.nodes(t, "milan")
	on := func(lines ...string) {
		for _, node := range nodes {
			for _, line := range lines {
				c.Run(t, append([]string{"run", "milan", "--node", node, "--"}, strings.Split(line, "|")...)...)
			}
		}
	}
	const table = "cut"
	var lines []string
	for hook, port := range map[string]string{"prerouting": "dport", "output": "sport"} {
		lines = append(lines, fmt.Sprintf("nft|add chain inet %s %s { type filter hook %s priority -350; }", table, hook, hook),
			fmt.Sprintf("nft|add rule inet %s %s udp %s %d drop", table, hook, port, milan.Spec.Port))
	}
	cut := true
	t.Cleanup(func() {
		if cut {
			on("nft|delete|table|inet|" + table)
		}
	})
	on("nft|add|table|inet|" + table)
	on(lines...)
	begin := time.Now()
	x.eventually(t, outageLimit, "nothing behind the tunnel is ready, on either side", behind(0))
	t.Logf("not ready %s after the cut", time.Since(begin).Round(100*time.Millisecond))
	if node, err := get[corev1.Node](c, "rome", "", "milan"); err != nil || !strings.HasPrefix(nodeReadiness(node), "True") {
		t.Errorf("only the tunnel is cut, and the node of milan is not Ready: %v", err)
	}
	on("nft|delete|table|inet|" + table)
	cut, begin = false, time.Now()
	x.eventually(t, outageLimit, "all of it is ready again", behind(1))
	t.Logf("ready again %s after", time.Since(begin).Round(100*time.Millisecond))
}
