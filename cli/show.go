package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

// printReport shows a report for people: what is wrong, then what there is.
func printReport(w io.Writer, paint screen.Paint, r Report, now time.Time) error {
	for _, p := range r.Problems {
		reason := ""
		if p.Reason != "" {
			reason = " (" + p.Reason + ")"
		}
		text := screen.Wrap(p.Object+": "+p.Message+reason, "  ", screen.Width-2)
		fmt.Fprintf(w, "%s %s\n", paint.Text(screen.Red, "✗"), text)
		if p.Remedy != "" {
			fmt.Fprintf(w, "  %s\n", screen.Wrap("→ "+p.Remedy, "    ", screen.Width))
		}
	}
	if len(r.Problems) == 0 {
		fmt.Fprintf(w, "%s All is well.\n", paint.Text(screen.Green, "✓"))
	}
	fmt.Fprintln(w)
	id := r.Cluster.ID
	if id == "" {
		id = "no id yet"
	}
	fmt.Fprintf(w, "Cluster %s (%s), Kubernetes %s\n", r.Cluster.Name, id, r.Cluster.KubernetesVersion)
	for _, c := range r.Components {
		state := paint.Text(screen.Green, "ready")
		if !c.Ready {
			state = paint.Text(screen.Red, "not ready")
		}
		fmt.Fprintf(w, "  %s %s, %s\n", c.Name, state, c.Image)
	}
	if err := printPeerings(w, paint, r.Peerings, now); err != nil {
		return err
	}
	if err := printTenants(w, paint, r.Tenants, now); err != nil {
		return err
	}
	for i, invitation := range r.Invitations {
		if i == 0 {
			fmt.Fprintln(w, "\nInvitations that wait to be used:")
		}
		whom := "for " + invitation.Consumer
		if invitation.Consumer == "" {
			whom = "for anybody"
		}
		fmt.Fprintf(w, "  %s %s, ends in %s\n", invitation.Name, whom, span(invitation.Expires.Sub(now)))
	}
	return nil
}

func printPeerings(w io.Writer, paint screen.Paint, peerings []PeeringReport, now time.Time) error {
	fmt.Fprintln(w)
	if len(peerings) == 0 {
		fmt.Fprintln(w, "No peerings. To begin: pelago generate peer-command")
		return nil
	}
	var rows [][]screen.Cell
	for _, p := range peerings {
		version, offered := "-", "-"
		if p.Remote != nil && p.Remote.Version != "" {
			version = p.Remote.Version
		}
		if len(p.Offers) > 0 {
			offered = offers(p.Offers)
		}
		rows = append(rows, []screen.Cell{
			{Text: p.Name}, {Text: roles(p.Roles)}, readyCell(p.Ready), {Text: version},
			{Text: offered}, {Text: ago(p.Contact, now)}, {Text: ahead(p.Expires, now)},
		})
	}
	return screen.Table(w, paint, []string{"PEERING", "ROLES", "READY", "VERSION", "OFFERED", "CONTACT", "EXPIRES"}, rows)
}

func printTenants(w io.Writer, paint screen.Paint, tenants []TenantReport, now time.Time) error {
	if len(tenants) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	var rows [][]screen.Cell
	for _, t := range tenants {
		rows = append(rows, []screen.Cell{
			{Text: t.Name}, {Text: string(t.State), Colour: stateColour(t.State)}, readyCell(t.Ready),
			{Text: share(t, "cpu")}, {Text: share(t, "memory")}, {Text: share(t, "pods")}, {Text: ago(t.Contact, now)},
		})
	}
	return screen.Table(w, paint, []string{"TENANT", "STATE", "READY", "CPU", "MEMORY", "PODS", "CONTACT"}, rows)
}

func stateColour(s v1alpha1.TenantState) screen.Colour {
	if s == v1alpha1.TenantActive {
		return screen.Plain
	}
	return screen.Yellow
}

func readyCell(ready bool) screen.Cell {
	if ready {
		return screen.Cell{Text: "yes", Colour: screen.Green}
	}
	return screen.Cell{Text: "no", Colour: screen.Red} // the reason is among the problems
}

func roles(list []v1alpha1.Role) string {
	switch len(list) {
	case 0:
		return "-"
	case 1:
		return strings.ToLower(string(list[0]))
	}
	return "both"
}

// offers is what is offered in all, by the resources people look for first.
func offers(list []OfferReport) string {
	var parts []string
	for _, offer := range list {
		short := v1alpha1.ResourceList{}
		for _, name := range []string{"cpu", "memory"} {
			if quantity, has := offer.Resources[name]; has {
				short[name] = quantity
			}
		}
		text := chain.Amounts(short)
		if !offer.Accepted {
			text = strings.TrimSpace(text + " (open)")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// share is what a tenant uses of its limit.
func share(t TenantReport, name string) string {
	text := "0"
	if used, has := t.Used[name]; has {
		text = chain.Amount(name, used)
	}
	if limit, has := t.Limits[name]; has {
		text += "/" + chain.Amount(name, limit)
	}
	return text
}

func ago(t *metav1.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return span(now.Sub(t.Time)) + " ago"
}

func ahead(t *metav1.Time, now time.Time) string {
	switch {
	case t == nil:
		return "-"
	case now.After(t.Time):
		return "ended"
	}
	return "in " + span(t.Sub(now))
}
