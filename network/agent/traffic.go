package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/traffic"
)

var (
	trafficBytesDesc = prometheus.NewDesc("pelago_traffic_bytes_total",
		"Bytes that crossed between the clusters of a peering, sent or received, by the namespace of this cluster that they are of, headers of IP included.",
		[]string{"peering", "namespace", "direction"}, nil)
	trafficPacketsDesc = prometheus.NewDesc("pelago_traffic_packets_total",
		"Packets of these; those that the kernel handles as one count as one.", []string{"peering", "namespace", "direction"}, nil)
	unnamedDesc = prometheus.NewDesc("pelago_traffic_unnamed_bytes_total",
		"Bytes of namespaces for which there was no room among those of a peering. They are in those of no namespace, too.", []string{"peering"}, nil)
	missedDesc = prometheus.NewDesc("pelago_traffic_missed_connections_total",
		"Connections of a peering that ended too fast to be told of: what they carried since they were last asked about is in no count.", []string{"peering"}, nil)
)

// Bounds of what is told of traffic.
const (
	// trafficEvery is how often open connections are asked about at most, and trafficLimit
	// how long that may take, at all gateways here together.
	trafficEvery = 5 * time.Second
	trafficLimit = 2 * time.Second
	// maxSpaces is how many namespaces the traffic of one peering is told by. That of the others
	// is of none, and those that have had no pod for goneFor make room for them.
	maxSpaces = 500
	// goneFor is how long an address is of the pod that had it last: what the kernel tells of
	// last is of connections that it has waited for after their pods had gone.
	goneFor = 5 * time.Minute
	// maxGone is how many addresses that count for.
	maxGone = 1 << 15
)

// ledger counts what crosses at the gateways here, by the namespaces of this cluster that it is of.
type ledger struct {
	spaces  dataplane.Namespaces
	log     logr.Logger
	holders holders

	mu       sync.Mutex
	accounts map[string]*account
	wrong    map[string]string // why there is none
	// talks are those between providers, by the key of the peering whose gateway has seen them, and
	// through what is named of them.
	talks   map[string]talks
	through map[string][]string

	looking sync.Mutex
	looked  time.Time
}

func newLedger(to prometheus.Registerer, spaces dataplane.Namespaces, log logr.Logger) (*ledger, error) {
	l := &ledger{spaces: spaces, log: log, accounts: map[string]*account{}, wrong: map[string]string{}}
	if err := to.Register(l); err != nil {
		return nil, fmt.Errorf("registering metrics of traffic: %w", err)
	}
	return l, nil
}

// close ends the accounts of gateways that are not here any more: theirs begin at 0 elsewhere.
func (l *ledger) close(gateways []dataplane.Gateway) {
	for key, a := range l.all() {
		if slices.ContainsFunc(gateways, func(g dataplane.Gateway) bool { return g.Peering == key }) {
			continue
		}
		l.mu.Lock()
		delete(l.accounts, key)
		l.mu.Unlock()
		if err := a.meter.Close(); err != nil {
			l.log.Error(err, "ending the count of traffic", "peering", key)
		}
	}
}

// open has each gateway counted. Where that cannot be it goes on uncounted. Views of other providers
// are of the peerings of via.
func (l *ledger) open(gateways []dataplane.Gateway, via map[netip.Prefix]string) {
	accounts := l.all()
	wrong := map[string]string{}
	for _, g := range gateways {
		if a := accounts[g.Peering]; a != nil {
			a.is(g, via)
			continue
		}
		a, err := l.begin(g, via)
		if err != nil {
			wrong[g.Peering] = err.Error()
			if l.wrong[g.Peering] != err.Error() {
				l.log.Error(err, "counting traffic", "peering", g.Peering)
			}
			continue
		}
		l.mu.Lock()
		l.accounts[g.Peering] = a
		l.mu.Unlock()
	}
	l.wrong = wrong
}

func (l *ledger) begin(g dataplane.Gateway, via map[netip.Prefix]string) (*account, error) {
	space, err := l.spaces.Open(g.Peering)
	if err != nil {
		return nil, err
	}
	a := &account{holder: l.holders.of, volumes: map[string]*[2]volume{}}
	a.is(g, via)
	a.meter, err = traffic.Open(traffic.Options{Namespace: space, Told: a.add})
	return a, errors.Join(err, space.Close())
}

// own takes whose addresses are now.
func (l *ledger) own(now map[netip.Addr]string, at time.Time) {
	l.holders.are(now, at)
	are := l.holders.namespaces()
	for _, a := range l.all() {
		a.trim(are)
	}
}

func (l *ledger) all() map[string]*account {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.accounts)
}

// Describe implements prometheus.Collector.
func (l *ledger) Describe(out chan<- *prometheus.Desc) {
	out <- trafficBytesDesc
	out <- trafficPacketsDesc
	out <- unnamedDesc
	out <- missedDesc
}

// Collect implements prometheus.Collector.
func (l *ledger) Collect(out chan<- prometheus.Metric) {
	l.look(time.Now())
	for key, a := range l.all() {
		volumes, unnamed := a.told()
		out <- prometheus.MustNewConstMetric(unnamedDesc, prometheus.CounterValue, float64(unnamed), key)
		for namespace, both := range volumes {
			for i, direction := range []string{"sent", "received"} {
				out <- prometheus.MustNewConstMetric(trafficBytesDesc, prometheus.CounterValue, float64(both[i].bytes), key, namespace, direction)
				out <- prometheus.MustNewConstMetric(trafficPacketsDesc, prometheus.CounterValue, float64(both[i].packets), key, namespace, direction)
			}
		}
		if n, err := a.meter.Lost(); err == nil {
			out <- prometheus.MustNewConstMetric(missedDesc, prometheus.CounterValue, float64(n), key)
		}
	}
}

// named are the providers to be named of those whose gateways are here.
func (l *ledger) named() map[string][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.through // which is never changed
}

// look asks about open connections, if nobody has done so a moment ago.
func (l *ledger) look(now time.Time) {
	l.looking.Lock()
	defer l.looking.Unlock()
	if now.Sub(l.looked) < trafficEvery {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), trafficLimit)
	defer cancel()
	for key, a := range l.all() {
		if err := a.meter.Read(ctx); err != nil { // another time
			l.log.V(1).Info("open connections cannot be counted", "peering", key, "error", err.Error())
		}
	}
	l.looked = time.Now()
}

// volume is what went one way.
type volume struct{ packets, bytes uint64 }

// account is what has crossed at one gateway.
type account struct {
	meter  *traffic.Meter
	holder func(netip.Addr) (namespace string, ok bool)

	mu    sync.Mutex
	views []dataplane.View
	ends  [2]netip.Addr // this end of the tunnel itself, in each family
	// volumes are what was sent and received, by namespace.
	volumes map[string]*[2]volume
	unnamed uint64 // bytes of those for which there was no room
	// transits are the views of other providers that the peer reaches, and through the bytes that it
	// has exchanged with each of these, by the keys of their peerings.
	transits []transit
	through  map[string]uint64
}

// is takes what the gateway is now.
func (a *account) is(g dataplane.Gateway, via map[netip.Prefix]string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.views, a.ends, a.transits = g.Views, [2]netip.Addr{g.ProbeAt, g.LineAt}, nil
	before := a.through
	a.through = map[string]uint64{}
	for _, view := range g.Transit {
		if of, ok := via[view]; ok {
			a.transits = append(a.transits, transit{view, of})
			a.through[of] = before[of]
		}
	}
}

// passed are the bytes that the peer has exchanged with other providers.
func (a *account) passed() map[string]uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.through)
}

// told are the volumes, and how many bytes of those of no namespace are of one without room.
func (a *account) told() (volumes map[string][2]volume, unnamed uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string][2]volume{}
	for namespace, both := range a.volumes {
		all[namespace] = *both
	}
	return all, a.unnamed
}

// trim makes room for namespaces, if there is none, by leaving out those that are not: what comes of
// these again begins at 0.
func (a *account) trim(are map[string]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.volumes) >= maxSpaces {
		maps.DeleteFunc(a.volumes, func(namespace string, _ *[2]volume) bool { return namespace != "" && !are[namespace] })
	}
}

// add counts what a connection has carried, but for the gateway's own probes, and what the other end
// calls at this one.
func (a *account) add(p traffic.Portion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.ends[:], p.Original.From) || slices.Contains(a.ends[:], p.Original.To) {
		return
	}
	ours, theirs, sent, received := sidesOf(p, a.views)
	for _, t := range a.transits {
		if t.view.Contains(ours) {
			a.through[t.of] += p.Original.Bytes + p.Reply.Bytes
			break
		}
	}
	namespace, ok := a.holder(ours)
	if !ok { // none that is known: if the other end is a pod of ours, there
		namespace, _ = a.holder(theirs)
	}
	both := a.volumes[namespace]
	if both == nil && namespace != "" && len(a.volumes) >= maxSpaces {
		namespace, both = "", a.volumes[""]
		a.unnamed += sent.Bytes + received.Bytes
	}
	if both == nil {
		both = &[2]volume{}
		a.volumes[namespace] = both
	}
	for i, d := range []traffic.Direction{sent, received} {
		both[i].packets += d.Packets
		both[i].bytes += d.Bytes
	}
}

// sidesOf are the ends of a connection, both as this cluster sees them, and what went each way. Those
// that begin here go to a view; those that the peer begins are answered to one.
func sidesOf(p traffic.Portion, views []dataplane.View) (ours, theirs netip.Addr, sent, received traffic.Direction) {
	if slices.ContainsFunc(views, func(v dataplane.View) bool { return v.View.Contains(p.Original.To) }) {
		return p.Original.From, p.Original.To, p.Original, p.Reply
	}
	return p.Reply.From, p.Reply.To, p.Reply, p.Original
}

// holders are whose addresses are, and were a while ago. The zero value knows none.
type holders struct {
	mu   sync.Mutex
	now  map[netip.Addr]string
	gone map[netip.Addr]former
}

// former is who had an address, and until when.
type former struct {
	namespace string
	until     time.Time
}

// of is the namespace that an address belongs to.
func (h *holders) of(a netip.Addr) (namespace string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if namespace, ok = h.now[a]; ok {
		return namespace, true
	}
	was, ok := h.gone[a]
	return was.namespace, ok
}

// are takes whose addresses are now.
func (h *holders) are(now map[netip.Addr]string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone == nil {
		h.gone = map[netip.Addr]former{}
	}
	maps.DeleteFunc(h.gone, func(a netip.Addr, l former) bool {
		_, again := now[a]
		return again || at.Sub(l.until) > goneFor
	})
	for a, namespace := range h.now {
		if _, still := now[a]; !still && len(h.gone) < maxGone {
			h.gone[a] = former{namespace, at}
		}
	}
	h.now = now
}

// namespaces are those that have an address, or had one a while ago.
func (h *holders) namespaces() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := map[string]bool{}
	for _, namespace := range h.now {
		all[namespace] = true
	}
	for _, was := range h.gone {
		all[was.namespace] = true
	}
	return all
}
