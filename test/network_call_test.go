package test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// call is one way that has to work.
type call struct {
	kind, family string
	from, to     *spot
	// target is what is called, as the line of callLine has it.
	target string
	// as is what the server has to see.
	as string
}

// longAnswer is how many lines there are in an answer of many whole packets, longLine whoLine
// with such.
const longAnswer = 4000

var longLine = strings.Replace(whoLine, `"$HOSTNAME"`, fmt.Sprintf(`"$HOSTNAME"; seq %d`, longAnswer), 1)

// callLine calls each of its arguments, an address with a port or FAMILY/NAME/PORT, and prints
// it with what the server says, and how many lines came after that:
// two at a time, as all at once would be a thousand processes.
const callLine = `i=0; for t in "$@"; do (
u=$t; case $t in a*/*) k=${t%%/*}; r=${t#*/}; n=${r%/*}
h=$(nslookup -type=$k "$n" 2>&1 | sed -n 's/^Address: *//p' | tail -n 1); case $h in *:*) h="[$h]";; esac; u=$h:${r##*/};; esac
echo "$t $(timeout 5 wget -q -O - "http://$u/cgi-bin/who" 2>&1 | awk 'NR==1 {s=$0} NR>1 {n++} END {print s, n+0}')") & i=$((i+1)); [ $((i % 2)) != 0 ] || wait; done; wait`

// calls are all of a passage: each kind, from each pod of a side to each of the other, and from
// the consumer's nodes.
func (p *passage) calls(t *testing.T) (all []call) {
	t.Helper()
	for _, family := range p.families() {
		for _, way := range []struct{ from, to []*spot }{{p.home, p.away}, {p.away, p.home}, {p.callers, p.away}} {
			for _, from := range way.from {
				for _, to := range way.to {
					all = append(all, p.kinds(t, family, from, to)...)
				}
			}
		}
	}
	return all
}

func (p *passage) kinds(t *testing.T, family string, from, to *spot) (all []call) {
	t.Helper()
	own, target, outside := address(from.pod.Status.PodIPs, family), address(to.pod.Status.PodIPs, family), ""
	for _, a := range p.outside {
		if a.Is6() == (family == "IPv6") {
			outside = a.String()
		}
	}
	if from.cluster == p.consumer { // else the consumer's view is the one of the pod at home
		own = outside
		if !from.pod.Spec.HostNetwork {
			own = seen(t, p.consumerViews, address(from.pod.Status.PodIPs, family))
		}
	} else {
		target = seen(t, p.consumerViews, target)
	}
	balancer := ""
	for _, in := range to.service.Status.LoadBalancer.Ingress {
		if a, err := netip.ParseAddr(in.IP); err == nil && a.Is6() == (family == "IPv6") {
			balancer = in.IP
		}
	}
	var cluster []corev1.PodIP
	for _, a := range to.service.Spec.ClusterIPs {
		cluster = append(cluster, corev1.PodIP{IP: a})
	}
	add := func(kind, target string, as string) {
		all = append(all, call{kind: kind, family: family, from: from, to: to, target: target, as: as})
	}
	add("pod", join(target, webPort), own)
	add("ClusterIP", join(address(cluster, family), 80), own)
	add("LoadBalancer", join(balancer, 80), own)
	nodePort := func(kind string, at *spot, as string) {
		var host []corev1.PodIP
		for _, a := range at.local.Status.HostIPs {
			host = append(host, corev1.PodIP(a))
		}
		add(kind, join(address(host, family), to.service.Spec.Ports[0].NodePort), as)
	}
	nodePort("NodePort", from, own)
	for _, e := range p.callers {
		// What leaves a node for another one does so as the node, and nodes of the provider's
		// do not reach home.
		if from.cluster == p.consumer && e.node != from.node {
			nodePort("NodePort of another node", e, outside)
		}
	}
	if !from.pod.Spec.HostNetwork { // whose names are its node's
		record := map[string]string{"IPv4": "a", "IPv6": "aaaa"}[family]
		add("headless", fmt.Sprintf("%s/%s.peers.%s.svc.%s/%d", record, to.pod.Name, p.shop.name, p.domain, webPort), own)
	}
	return all
}

// address is the one of a family.
func address(all []corev1.PodIP, family string) string {
	for _, a := range all {
		if parsed, err := netip.ParseAddr(a.IP); err == nil && parsed.Is6() == (family == "IPv6") {
			return a.IP
		}
	}
	return ""
}

// pass has all calls come through, and the gateways stay where they are meanwhile.
func (p *passage) pass(t *testing.T, link string) {
	calls := p.calls(t)
	begin, first := time.Now(), -1
	deadline := begin.Add(2 * patience)
	left, why := calls, map[string]string(nil)
	for {
		tried := time.Now()
		left, why = p.try(left)
		if first < 0 {
			first = len(left)
			for _, each := range left {
				t.Logf("not at once: %s: %s", p.describe(each), why[each.key()])
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		pause(tried)
	}
	for _, each := range left {
		t.Errorf("%s, %s at %s, %s, %s: %s", p.world, p.consumer, p.provider, link, p.describe(each), why[each.key()])
	}
	t.Logf("%d calls, %d not at once, %d not at all, after %s", len(calls), first, len(left), time.Since(begin).Round(100*time.Millisecond))
	eventually(t, healLimit, fmt.Sprintf("%s, %s: the gateways are where they were", p.world, link), func() error {
		now, err := p.gateways()
		if err == nil && (now[p.consumer] != p.gateway[p.consumer] || now[p.provider] != p.gateway[p.provider]) {
			err = fmt.Errorf("they were %v and are %v", p.gateway, now)
		}
		return err
	})
	if len(left) > 0 {
		p.shop.dump(t)
	}
}

func (c call) key() string { return c.from.pod.Name + " " + c.target }

// describe names a call by all that tells it from others.
func (p *passage) describe(c call) string {
	place := func(e *spot) string {
		if e.node == p.gateway[e.cluster] {
			return "on the gateway's node"
		}
		return "on another node"
	}
	who := "pod"
	if c.from.pod.Spec.HostNetwork {
		who = "node"
	}
	return fmt.Sprintf("%s, %s to %s, %s of %s %s to a pod %s (%s to %s)", c.family, c.from.cluster, c.to.cluster, who, c.from.cluster, place(c.from)+" by "+c.kind, place(c.to), c.from.pod.Name, c.target)
}

// try makes calls, those of one pod at once, and returns the ones that went wrong and why.
func (p *passage) try(calls []call) (left []call, why map[string]string) {
	by := map[string][]call{}
	for _, c := range calls {
		by[c.from.pod.Name] = append(by[c.from.pod.Name], c)
	}
	why = map[string]string{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, mine := range by {
		all.Go(func() {
			answers, err := p.ask(name, mine)
			mu.Lock()
			defer mu.Unlock()
			for _, c := range mine {
				if wrong := c.judge(answers[c.target]); wrong != nil { // what came before an end counts
					left, why[c.key()] = append(left, c), errors.Join(err, wrong).Error()
				}
			}
		})
	}
	all.Wait()
	return left, why
}

// ask has a pod make calls.
func (p *passage) ask(pod string, calls []call) (map[string]string, error) {
	command := []string{"sh", "-c", callLine, "sh"}
	for _, c := range calls {
		command = append(command, c.target)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := p.Exec(ctx, p.consumer, p.shop.name, pod, command...)
	answers := map[string]string{}
	for line := range strings.Lines(out) {
		target, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		answers[target] = text
	}
	return answers, err
}

// judge says what is wrong with an answer.
func (c call) judge(answer string) error {
	words := strings.Fields(answer)
	if len(words) != 3 || words[1] != c.to.pod.Name {
		return fmt.Errorf("the answer is %q", answer)
	}
	if client := strings.TrimPrefix(strings.Trim(words[0], "[]"), "::ffff:"); client != c.as {
		return fmt.Errorf("it sees %s, want %s", client, c.as)
	}
	if words[2] != strconv.Itoa(longAnswer) {
		return fmt.Errorf("%s lines came, want %d", words[2], longAnswer)
	}
	return nil
}

// TestJudge holds what is an answer: of the right server, to the right client, and whole.
func TestJudge(t *testing.T) {
	c := call{to: &spot{pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}, as: "10.254.0.7"}
	cases := []struct{ reason, answer, want string }{
		{"as it has to be", "10.254.0.7 data 4000", ""},
		{"IPv4 as a server of both families says it", "[::ffff:10.254.0.7] data 4000", ""},
		{"nothing", " 0", "the answer is"},
		{"an error", "wget: can't connect to remote host 0", "the answer is"},
		{"another server", "10.254.0.7 front 4000", "the answer is"},
		{"another client", "10.255.254.1 data 4000", "sees 10.255.254.1, want 10.254.0.7"},
		{"a part", "10.254.0.7 data 3999", "3999 lines"},
	}
	for _, each := range cases {
		t.Run(each.reason, func(t *testing.T) {
			err := c.judge(each.answer)
			if (err == nil) != (each.want == "") || err != nil && !strings.Contains(err.Error(), each.want) {
				t.Errorf("%v, want %q", err, each.want)
			}
		})
	}
}
