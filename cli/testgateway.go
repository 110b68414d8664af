package cli

import (
	"context"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// gateways are the nodes of this cluster that have the tunnels to providers, by peering; none where nobody may read
// that, which keeps no way from being tried.
func (w *testbed) gateways(ctx context.Context, now time.Time) map[string]string {
	s, err := w.cluster.gatherNetwork(ctx)
	if err != nil {
		return nil
	}
	return s.gateways(now)
}

// gateways are those whose tunnel somebody reports.
func (s *snapshot) gateways(now time.Time) map[string]string {
	all, reports := map[string]string{}, s.reports(now)
	for _, t := range s.tunnels() {
		if t.look(s.fabric, reports[t.key], now); t.Role == v1alpha1.RoleConsumer && t.Gateway != "" {
			all[t.Name] = t.Gateway
		}
	}
	return all
}
