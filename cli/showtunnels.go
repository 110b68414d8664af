package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

// networks shows the tunnels, and in detail by which prefixes the clusters see each other.
func (v view) networks(networks []NetworkReport) error {
	if len(networks) == 0 {
		return nil
	}
	fmt.Fprintln(v.out)
	var rows [][]screen.Cell
	var reaches []v1alpha1.Reachability
	for _, n := range networks {
		state, gateway, latency, loss := screen.Cell{Text: string(n.Tunnel), Colour: screen.Yellow}, n.Gateway, "-", "-"
		switch n.Tunnel {
		case TunnelUp:
			state.Colour, latency, loss = screen.Green, millis(n.LatencyMicros), percent(n.Loss)
		case TunnelDown:
			state.Colour = screen.Red
		}
		if gateway == "" {
			gateway = "-"
		}
		rows = append(rows, []screen.Cell{{Text: n.Name}, {Text: strings.ToLower(string(n.Role))}, state, {Text: gateway}, {Text: latency}, {Text: loss}, {Text: seen(n.Views)}})
		reaches = append(reaches, n.Reachability)
	}
	titles, rows := withReach([]string{"NETWORK", "ROLE", "TUNNEL", "GATEWAY", "LATENCY", "LOSS", "SEEN HERE AS"}, rows, reaches)
	if err := screen.Table(v.out, v.paint, v.width, titles, rows); err != nil {
		return err
	}
	if err := v.paths(networks); err != nil {
		return err
	}
	for _, n := range networks {
		if err := v.network(n); err != nil {
			return err
		}
	}
	return nil
}

// network shows one tunnel, if it is to be shown.
func (v view) network(n NetworkReport) error {
	if !v.detailed {
		return nil
	}
	fmt.Fprintf(v.out, "\nNetwork with %s, this cluster the %s:\n", n.Name, strings.ToLower(string(n.Role)))
	if n.Endpoint != "" {
		engine := "the agent itself"
		if n.Kernel {
			engine = "the kernel"
		}
		since := ""
		if n.Since != nil {
			since = ", " + string(n.Tunnel) + " for " + span(v.now.Sub(n.Since.Time))
		}
		fmt.Fprintln(v.out, "  "+screen.Wrap(fmt.Sprintf("the other side at %s, carried by %s%s", n.Endpoint, engine, since), "  ", screen.Width-2))
	}
	v.direct(n)
	var rows [][]screen.Cell
	for _, view := range n.Views {
		rows = append(rows, screen.Row(n.Name, view.Real, view.View, "here"))
	}
	for _, view := range n.SeenAs {
		rows = append(rows, screen.Row(cmp.Or(n.Through[view.Real], "this cluster"), view.Real, view.View, "at "+n.Name))
	}
	if len(rows) == 0 {
		return nil
	}
	return screen.Table(v.out, v.paint, v.width, []string{"RANGE OF", "RANGE", "IS SEEN AS", "WHERE"}, rows)
}

// seen is in short what the other cluster's ranges are here.
func seen(views []v1alpha1.NetworkView) string {
	var all []string
	for _, v := range views {
		if v.View != "" {
			all = append(all, v.View)
		}
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

// millis writes a time there and back.
func millis(micros int64) string {
	switch {
	case micros <= 0:
		return "-"
	case micros < 10_000:
		return strconv.FormatFloat(float64(micros)/1000, 'f', 1, 64) + " ms"
	}
	return strconv.FormatInt((micros+500)/1000, 10) + " ms"
}

// percent writes a part of a whole; what is there at all is not shown as nothing.
func percent(part float64) string {
	switch {
	case part <= 0:
		return "0%"
	case part < 0.01:
		return "<1%"
	}
	return strconv.Itoa(int(min(part, 1)*100+0.5)) + "%"
}
