package internet

import "context"

// stats returns all counters since the router was made.
func (r *router) stats(ctx context.Context) (Stats, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	flows, err := r.flows(ctx)
	return Stats{Flows: flows}, err
}

// flows adds up the past, the rule set in force and the relays. The few packets
// that pass between reading the counters and replacing a rule set are missed.
func (r *router) flows(ctx context.Context) ([]Flow, error) {
	counts, err := readCounters(ctx)
	if err != nil {
		return nil, err
	}
	flows := []Flow{}
	for _, p := range r.config.pairs() {
		from, to := r.config.Ports[p.from].Cluster, r.config.Ports[p.to].Cluster
		f := r.past[flowName(from, to)]
		f.From, f.To = from, to
		passed, dropped := counterNames(from, to)
		f.Packets += counts[passed].packets
		f.Bytes += counts[passed].bytes
		f.Drops += counts[dropped].packets
		if relay := r.relays[deviceName(p.from, p.to)]; relay != nil {
			f.Drops += relay.lane(from < to).drops.Load()
		}
		flows = append(flows, f)
	}
	return flows, nil
}

func (r *relay) lane(forth bool) *lane {
	if forth {
		return r.lanes[0]
	}
	return r.lanes[1]
}

func flowName(from, to string) string { return from + " " + to }

// takeRelayDrops moves what the relays counted to the past, before they serve
// another config.
func (r *router) takeRelayDrops() {
	for _, p := range r.config.pairs() {
		from, to := r.config.Ports[p.from].Cluster, r.config.Ports[p.to].Cluster
		if relay := r.relays[deviceName(p.from, p.to)]; relay != nil {
			f := r.past[flowName(from, to)]
			f.Drops += relay.lane(from < to).drops.Swap(0)
			r.past[flowName(from, to)] = f
		}
	}
}

// forget drops the past of clusters that are no more.
func (r *router) forget() {
	present := map[string]bool{}
	for _, p := range r.config.pairs() {
		present[flowName(r.config.Ports[p.from].Cluster, r.config.Ports[p.to].Cluster)] = true
	}
	for name := range r.past {
		if !present[name] {
			delete(r.past, name)
		}
	}
}
