package bench

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/bench/plot"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// What the product promises of many pods at once, on 2 cores, both clusters on the same
// machine.
const (
	rateLeast     = 0.5 // pods a second, of as many plain ones
	requestsMost  = 8   // of ours for a pod's life, everywhere
	acrossMost    = 2   // of these at ShadowPods across the link: create and delete
	eventsMost    = 1   // for a pod, on each side
	wireMost      = 10  // kB for a pod's life, both directions, IP bytes
	delayMost     = 1.2 // the time at 50 ms, of that at 0 ms
	idleMemory    = 80  // MiB of a manager at rest
	burstMemory   = 300 // MiB of a manager, pods running
	processorMost = 25  // seconds of processor for the life of 1,000 pods, all managers
)

// Sizes of bursts and round trips to measure at, as lists, instead of the usual ones.
const (
	envPods   = "PELAGO_BENCH_PODS"
	envDelays = "PELAGO_BENCH_DELAYS"
)

// TestOffload measures many pods at once, plain and offloaded in turn, and what of API
// requests, traffic, processor and memory the offloaded ones cost. Nodes are hollow:
// what is measured is control planes and ours.
func TestOffload(t *testing.T) {
	wanted, err := offloadPlan(os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	c := hollowContinuum(t)
	hasRoom(t, c, slices.Max(wanted.sizes))
	_, memory := vitals(t, c)
	atMost(t, "memory of a manager at rest, no pods", memory, idleMemory, "MiB")
	pairs := map[kind][2]burst{}
	for _, k := range wanted.kinds {
		pairs[k] = burstPair(t, c, k)
	}
	least := leastPair(t, c)
	var results []offloadResult
	for _, delay := range wanted.delays {
		c.Run(t, "link", "set", "rome", "milan", "--delay", (delay / 2).String())
		for _, n := range wanted.sizes {
			for _, k := range wanted.kinds {
				t.Run(fmt.Sprintf("%d/%s/%s", n, delay, k), func(t *testing.T) {
					r := offloadBurst(t, pairs[k][0], pairs[k][1], n, delay)
					r.check(t, results)
					if delay == 0 && n <= leastPods {
						r.checkLeast(t, least)
					}
					results = append(results, r)
				})
			}
		}
	}
	if len(results) > 0 { // else they were filtered
		draw(t, "bench-offload", offloadCharts(results)...)
	}
}

// burstPair are the pods of a kind that stay and those that go, each with a namespace of
// its own, and with caches filled.
func burstPair(t *testing.T, c *kubetest.Continuum, k kind) [2]burst {
	t.Helper()
	pair := [2]burst{
		{c: c, cluster: "rome", namespace: "here-" + string(k), plain: true, kind: k},
		{c: c, cluster: "rome", namespace: "away-" + string(k), kind: k},
	}
	for _, b := range pair {
		if err := c.Clients["rome"].Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}); err != nil {
			t.Fatal(err)
		}
	}
	away := pair[1].namespace
	c.Pelago(t, "rome", "offload", "namespace", away, "--pod-offloading-strategy", "Remote")
	if k.furnished() {
		c.Kubectl(t, "rome", "patch", "namespaceoffloadings.pelago.dev", v1alpha1.OffloadingName, "-n", away, "--type=merge", "-p", `{"spec":{"serviceAccountTokens":"Allow"}}`)
	}
	for _, b := range pair {
		b.furnish(t, makers)
		b.start(t, makers)
		b.end(t, makers)
		b.clear(t, makers)
	}
	pair[1].bare(t)
	return pair
}

// leastPods is the largest burst that is also made in both clusters at once.
const leastPods = 1000

// leastPair are plain pods of both clusters. As many of each at once are the least that
// any way of offloading does on one machine: a pod at home that is scheduled and whose
// status is written, and one at the provider that is scheduled and run. What tells one
// cluster of the other's comes on top.
func leastPair(t *testing.T, c *kubetest.Continuum) [2]burst {
	t.Helper()
	pair := [2]burst{
		{c: c, cluster: "rome", namespace: "least", plain: true, kind: plainKind},
		{c: c, cluster: "milan", namespace: "least", plain: true, kind: plainKind},
	}
	for _, b := range pair {
		if err := c.Clients[b.cluster].Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}}); err != nil {
			t.Fatal(err)
		}
		b.start(t, makers)
		b.end(t, makers)
	}
	return pair
}

// checkLeast says what of plain pods a second this machine has for both clusters at once,
// which is more than pods can be offloaded with.
func (r offloadResult) checkLeast(t *testing.T, pair [2]burst) {
	t.Helper()
	var least, plain sample
	for range r.rounds {
		all, _ := pair[0].start(t, r.pods)
		pair[0].end(t, r.pods)
		plain = append(plain, all)
		all, _ = startAll(t, r.pods, pair[:]...)
		pair[0].end(t, r.pods)
		pair[1].end(t, r.pods)
		least = append(least, all)
	}
	t.Logf("limit: %d pods: plain ones in both clusters at once, without offloading: %.1f pods/s in each, %.2f of those in one",
		r.pods, r.rate(least), r.rate(least)/r.rate(plain))
}

// offloadWanted is what TestOffload measures: all sizes of all kinds, at each round trip.
type offloadWanted struct {
	sizes  []int
	delays []time.Duration
	kinds  []kind
}

// offloadPlan says how many pods of which kinds to make at once and with which round
// trips, in the order of measuring.
func offloadPlan(getenv func(string) string) (p offloadWanted, err error) {
	if p.kinds, err = parseKinds(setOr(getenv(envKinds), string(plainKind))); err != nil {
		return offloadWanted{}, err
	}
	pods, trips := "100,1000", "0s"
	if getenv(envAll) == "1" {
		pods, trips = "100,1000,5000", "0s,50ms"
	}
	for word := range strings.SplitSeq(setOr(getenv(envPods), pods), ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 || n > 5000 {
			return offloadWanted{}, fmt.Errorf("%s names %q; write numbers of pods from 1 to 5000, like 100,1000", envPods, word)
		}
		for _, k := range p.kinds {
			if n > k.mostPods() {
				return offloadWanted{}, fmt.Errorf("%s names %d, and %s the kind %s; write at most %d, as what such pods refer to is a tenant's ShadowObjects", envPods, n, envKinds, k, k.mostPods())
			}
		}
		p.sizes = append(p.sizes, n)
	}
	for word := range strings.SplitSeq(setOr(getenv(envDelays), trips), ",") {
		d, err := time.ParseDuration(word)
		if err != nil || d < 0 {
			return offloadWanted{}, fmt.Errorf("%s names %q; write round trips like 0s,50ms", envDelays, word)
		}
		p.delays = append(p.delays, d)
	}
	return p, nil
}

func setOr(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

func TestOffloadPlan(t *testing.T) {
	cases := []struct {
		reason string
		env    map[string]string
		want   offloadWanted
		wrong  string
	}{
		{"minutes by default", nil, offloadWanted{[]int{100, 1000}, []time.Duration{0}, []kind{plainKind}}, ""},
		{"all, with time", map[string]string{envAll: "1"}, offloadWanted{[]int{100, 1000, 5000}, []time.Duration{0, 50 * time.Millisecond}, []kind{plainKind}}, ""},
		{"what is asked for", map[string]string{envAll: "1", envPods: "7", envDelays: "20ms", envKinds: "own,shared"}, offloadWanted{[]int{7}, []time.Duration{20 * time.Millisecond}, []kind{ownKind, sharedKind}}, ""},
		{"more than there is room for", map[string]string{envPods: "100,5001"}, offloadWanted{}, `"5001"`},
		{"no span of time", map[string]string{envDelays: "50"}, offloadWanted{}, `"50"`},
		{"no kind of pod", map[string]string{envKinds: "plain,full"}, offloadWanted{}, `"full"`},
		{"more of a kind than a tenant has objects for", map[string]string{envPods: "700", envKinds: "plain,own"}, offloadWanted{}, "at most 633"},
	}
	for _, c := range cases {
		got, err := offloadPlan(func(name string) string { return c.env[name] })
		if (err == nil) != (c.wrong == "") || !strings.Contains(fmt.Sprint(err), c.wrong) {
			t.Errorf("%s: error %v, want it to contain %q", c.reason, err, c.wrong)
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(offloadWanted{})); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, diff)
		}
	}
}

// offloadResult is what was measured of one size of bursts of a kind and one round trip.
type offloadResult struct {
	kind   kind
	pods   int
	delay  time.Duration
	rounds int
	// plain and away are the times of whole bursts, plainStarts and awayStarts of pods.
	plain, away, plainStarts, awayStarts sample
	cost                                 *cost
	// memory of the largest manager while all pods ran, in MiB.
	memory float64
}

// offloadBurst makes plain and offloaded pods in turn; small bursts vary, and are made
// several times.
func offloadBurst(t *testing.T, plain, away burst, n int, delay time.Duration) offloadResult {
	t.Helper()
	r := offloadResult{kind: away.kind, pods: n, delay: delay, rounds: 1, cost: newCost()}
	if n <= 100 {
		r.rounds = 3
	}
	for range r.rounds {
		plain.furnish(t, n)
		all, each := plain.start(t, n)
		r.plain, r.plainStarts = append(r.plain, all), append(r.plainStarts, each...)
		plain.end(t, n)
		plain.clear(t, n)

		away.furnish(t, n)
		meter := newMeter(t, away.c)
		all, each = away.start(t, n)
		r.away, r.awayStarts = append(r.away, all), append(r.awayStarts, each...)
		_, memory := vitals(t, away.c)
		r.memory = max(r.memory, memory)
		away.end(t, n)
		away.clear(t, n)
		away.bare(t)
		meter.read(t, r.cost)
	}
	return r
}

// rate is how many pods a second a burst of half the time is.
func (r offloadResult) rate(bursts sample) float64 {
	return float64(r.pods) / bursts.quantile(0.5).Seconds()
}

// each is a number for one of all pods that were made away.
func (r offloadResult) each(n int) float64 { return float64(n) / float64(r.pods*r.rounds) }

// check holds a result against what is promised; before are those at other round trips.
func (r offloadResult) check(t *testing.T, before []offloadResult) {
	t.Helper()
	what, k := fmt.Sprintf("%d %s pods at %d ms", r.pods, r.kind, r.delay.Milliseconds()), r.cost
	for name, starts := range map[string]sample{"plain": r.plainStarts, "offloaded": r.awayStarts} {
		t.Logf("%s, %s: create to Running p50 %.2f s, p99 %.2f s", what, name, starts.quantile(0.5).Seconds(), starts.quantile(0.99).Seconds())
	}
	t.Logf("%s: %.1f pods/s plain, %.1f offloaded", what, r.rate(r.plain), r.rate(r.away))
	t.Logf("%s: requests across the link: %s", what, k.across)
	t.Logf("%s: requests of milan's own: %s", what, k.provider)
	t.Logf("%s: requests of rome's own: %s", what, k.home)

	atLeast(t, what+": pods a second, of plain ones", r.rate(r.away)/r.rate(r.plain), rateLeast, "×")
	ofPods, ofObjects := r.split()
	atMost(t, what+": requests per pod", ofPods.sum(), requestsMost, "requests")
	if r.kind.furnished() {
		t.Logf("limit: %s: and for what each refers to: %s", what, ofObjects)
	}
	atMost(t, what+": of these at ShadowPods across the link", r.each(k.across.Sum(atShadowPods)), acrossMost, "requests")
	atMost(t, what+": events per pod at home", r.each(k.home.Sum(events)), eventsMost, "requests")
	atMost(t, what+": events per pod at the provider", r.each(k.provider.Sum(events)+k.across.Sum(events)), eventsMost, "requests")
	t.Logf("limit: %s: %.2f tokens per pod", what, r.each(k.home.Sum(tokens)+k.provider.Sum(tokens)+k.across.Sum(tokens)))
	wire := r.each(int(k.bytes)) / 1000
	if r.kind.furnished() {
		t.Logf("limit: %s: %.2f kB on the wire per pod with what it refers to", what, wire)
	} else {
		atMost(t, what+": on the wire per pod", wire, wireMost, "kB")
	}
	atMost(t, what+": processor per 1,000 pods", k.cpu*r.each(1000), processorMost, "s")
	atMost(t, what+": memory of a manager", r.memory, burstMemory, "MiB")
	for _, other := range before {
		if other.kind == r.kind && other.pods == r.pods && other.delay == 0 {
			atMost(t, what+": time, of that at 0 ms", r.away.quantile(0.5).Seconds()/other.away.quantile(0.5).Seconds(), delayMost, "×")
		}
	}
}

// share is how many requests there were for each pod: at home, of the provider's own,
// and across the link.
type share struct{ home, provider, across float64 }

func (s share) sum() float64 { return s.home + s.provider + s.across }

func (s share) String() string {
	return fmt.Sprintf("%.2f requests, of them %.2f at home, %.2f of the provider's own, %.2f across the link", s.sum(), s.home, s.provider, s.across)
}

// split tells requests for pods from those for what they refer to. Plain pods refer to
// nothing, so all are for them, but for the tokens that nobody asks for.
func (r offloadResult) split() (ofPods, ofObjects share) {
	of := func(wanted func(verb, resource string) bool) share {
		return share{r.each(r.cost.home.Sum(wanted)), r.each(r.cost.provider.Sum(wanted)), r.each(r.cost.across.Sum(wanted))}
	}
	if !r.kind.furnished() {
		return of(requests), share{}
	}
	return of(func(verb, resource string) bool { return requests(verb, resource) && !atObjects(verb, resource) }), of(atObjects)
}

func atShadowPods(_, resource string) bool {
	return resource == "shadowpods" || strings.HasPrefix(resource, "shadowpods/")
}

// offloadCharts draws results of all sizes at all round trips.
func offloadCharts(results []offloadResult) []plot.Chart {
	rates, starts := plot.Chart{Title: "pods a second"}, plot.Chart{Title: "create to Running, p50, seconds"}
	for _, r := range results {
		group, away := fmt.Sprintf("%d pods", r.pods), fmt.Sprintf("offloaded, %d ms", r.delay.Milliseconds())
		if r.kind.furnished() {
			group += ", " + string(r.kind)
		}
		if r.delay == 0 {
			rates.Set(group, "plain", r.rate(r.plain))
			starts.Set(group, "plain", r.plainStarts.quantile(0.5).Seconds())
		}
		rates.Set(group, away, r.rate(r.away))
		starts.Set(group, away, r.awayStarts.quantile(0.5).Seconds())
	}
	return []plot.Chart{rates, starts}
}

func TestOffloadCharts(t *testing.T) {
	seconds := func(n int) sample { return sample{time.Duration(n) * time.Second} }
	got := offloadCharts([]offloadResult{
		{pods: 100, plain: seconds(1), away: seconds(2), plainStarts: seconds(3), awayStarts: seconds(4)},
		{pods: 1000, plain: seconds(10), away: seconds(20), plainStarts: seconds(30), awayStarts: seconds(40)},
		{pods: 100, delay: 50 * time.Millisecond, plain: seconds(9), away: seconds(4), plainStarts: seconds(9), awayStarts: seconds(5)},
	})
	groups := []string{"100 pods", "1000 pods"}
	want := []plot.Chart{
		{Title: "pods a second", Groups: groups, Series: []plot.Series{
			{Name: "plain", Values: []float64{100, 100}}, {Name: "offloaded, 0 ms", Values: []float64{50, 50}}, {Name: "offloaded, 50 ms", Values: []float64{25}},
		}},
		{Title: "create to Running, p50, seconds", Groups: groups, Series: []plot.Series{
			{Name: "plain", Values: []float64{3, 30}}, {Name: "offloaded, 0 ms", Values: []float64{4, 40}}, {Name: "offloaded, 50 ms", Values: []float64{5}},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
