package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

// view is how a report is shown to people.
type view struct {
	out   io.Writer
	paint screen.Paint
	now   time.Time
	// width bounds tables; 0 is no bound.
	width int
	// detailed shows each request.
	detailed bool
}

// report shows what is wrong, then what waits, then what there is.
func (v view) report(r Report) error {
	for _, p := range r.Problems {
		v.line("✗", screen.Red, p)
	}
	for _, p := range r.Pending {
		v.line("…", screen.Yellow, p)
	}
	if len(r.Problems)+len(r.Pending) == 0 {
		fmt.Fprintf(v.out, "%s All is well.\n", v.paint.Text(screen.Green, "✓"))
	}
	fmt.Fprintln(v.out)
	v.home(r)
	if err := v.peerings(r.Peerings); err != nil {
		return err
	}
	if err := v.nodes(r.VirtualNodes); err != nil {
		return err
	}
	if err := v.offloaded(r.OffloadedNamespaces); err != nil {
		return err
	}
	if err := v.objects(r); err != nil {
		return err
	}
	if err := v.tenants(r.Tenants); err != nil {
		return err
	}
	if err := v.networks(r.Networks); err != nil {
		return err
	}
	for i, invitation := range r.Invitations {
		if i == 0 {
			fmt.Fprintln(v.out, "\nInvitations that wait to be used:")
		}
		whom := "for anybody"
		if invitation.Consumer != "" {
			whom += ", who will be called " + invitation.Consumer + " here"
		}
		fmt.Fprintf(v.out, "  %s %s, ends in %s\n", invitation.Name, whom, span(invitation.Expires.Sub(v.now)))
	}
	return nil
}

// line shows what is wrong with something, or what it waits for, and what to do.
func (v view) line(mark string, colour screen.Colour, p Problem) {
	reason := ""
	if p.Reason != "" {
		reason = " (" + p.Reason + ")"
	}
	text := screen.Wrap(p.Object+": "+p.Message+reason, "  ", screen.Width-2)
	fmt.Fprintf(v.out, "%s %s\n", v.paint.Text(colour, mark), text)
	if p.Remedy != "" {
		fmt.Fprintf(v.out, "  %s\n", wrapRemedy("→ "+p.Remedy, "    "))
	}
}

// wrapRemedy wraps a remedy, which may stand behind two columns. A line to copy in it
// stays whole.
func wrapRemedy(text, indent string) string {
	head, line, found := strings.Cut(text, "kubectl ")
	if wrapped := screen.Wrap(text, indent, screen.Width-2); !found || !strings.Contains(wrapped, "\n") {
		return wrapped
	}
	return screen.Wrap(head, indent, screen.Width-2) + "\n" + indent + "kubectl " + screen.Clean(line)
}

// home shows this cluster and Pelago in it.
func (v view) home(r Report) {
	id := r.Cluster.ID
	if id == "" {
		id = "no id yet"
	}
	fmt.Fprintf(v.out, "Cluster %s (%s), Kubernetes %s\n", r.Cluster.Name, id, r.Cluster.KubernetesVersion)
	for _, c := range r.Components {
		state := v.paint.Text(screen.Green, "ready")
		if !c.Ready {
			state = v.paint.Text(screen.Red, "not ready")
		}
		fmt.Fprintf(v.out, "  %s %s, %s\n", c.Name, state, c.Image)
	}
}

func (v view) peerings(peerings []PeeringReport) error {
	fmt.Fprintln(v.out)
	if len(peerings) == 0 {
		fmt.Fprintln(v.out, "No peerings. To begin: pelago generate peer-command")
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
			{Text: offered}, {Text: contact(p.InContact, p.Contact, v.now, p.InBand)}, {Text: ahead(p.Expires, v.now)},
		})
	}
	if err := screen.Table(v.out, v.paint, v.width, []string{"PEERING", "ROLES", "READY", "VERSION", "OFFERED", "CONTACT", "CREDENTIAL"}, rows); err != nil {
		return err
	}
	for _, p := range peerings {
		if err := v.requests("Requests to "+p.Name, p.Requests); err != nil {
			return err
		}
	}
	return nil
}

func (v view) tenants(tenants []TenantReport) error {
	if len(tenants) == 0 {
		return nil
	}
	fmt.Fprintln(v.out)
	var rows [][]screen.Cell
	for _, t := range tenants {
		rows = append(rows, []screen.Cell{
			{Text: t.Name}, {Text: string(t.State), Colour: stateColour(t.State)}, readyCell(t.Ready),
			{Text: share(t, "cpu")}, {Text: share(t, "memory")}, {Text: share(t, "pods")}, {Text: contact(t.InContact, t.Contact, v.now, t.InBand)},
		})
	}
	if err := screen.Table(v.out, v.paint, v.width, []string{"TENANT", "STATE", "READY", "CPU", "MEMORY", "PODS", "CONTACT"}, rows); err != nil {
		return err
	}
	for _, t := range tenants {
		if err := v.requests("Requests of "+t.Name, t.Requests); err != nil {
			return err
		}
	}
	return nil
}

// nodes shows virtual nodes: what the pods of this cluster use of each.
func (v view) nodes(nodes []VirtualNodeReport) error {
	if len(nodes) == 0 {
		return nil
	}
	fmt.Fprintln(v.out)
	var rows [][]screen.Cell
	for _, n := range nodes {
		ready := readyCell(n.Ready)
		if n.Ready && n.Cordoned {
			ready = screen.Cell{Text: "cordoned", Colour: screen.Yellow}
		}
		use := TenantReport{Used: n.Used, Limits: n.Allocatable}
		rows = append(rows, []screen.Cell{{Text: n.Name}, {Text: n.Peering}, ready, {Text: share(use, "cpu")}, {Text: share(use, "memory")}, {Text: share(use, "pods")}})
	}
	if err := screen.Table(v.out, v.paint, v.width, []string{"VIRTUAL NODE", "PEERING", "READY", "CPU", "MEMORY", "PODS"}, rows); err != nil {
		return err
	}
	return v.pods(nodes)
}

// pods shows how the pods on virtual nodes are.
func (v view) pods(nodes []VirtualNodeReport) error {
	var rows [][]screen.Cell
	number := func(n int, colour screen.Colour) screen.Cell {
		if n == 0 {
			colour = screen.Plain
		}
		return screen.Cell{Text: strconv.Itoa(n), Colour: colour}
	}
	for _, n := range nodes {
		if p := n.Pods; p != (PodsReport{}) {
			rows = append(rows, []screen.Cell{{Text: n.Name}, number(p.Running, screen.Plain), number(p.NotReady, screen.Yellow),
				number(p.Pending, screen.Yellow), number(p.Refused, screen.Red), number(p.Ending, screen.Plain)})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(v.out)
	return screen.Table(v.out, v.paint, v.width, []string{"PODS AT", "RUNNING", "NOT READY", "PENDING", "REFUSED", "ENDING"}, rows)
}

// offloaded shows offloaded namespaces.
func (v view) offloaded(namespaces []OffloadedReport) error {
	if len(namespaces) == 0 {
		return nil
	}
	fmt.Fprintln(v.out)
	var rows [][]screen.Cell
	var reaches []v1alpha1.Reachability
	for _, n := range namespaces {
		phase := screen.Cell{Text: string(n.Phase), Colour: screen.Yellow}
		switch n.Phase {
		case v1alpha1.OffloadingPhaseReady:
			phase.Colour = screen.Green
		case v1alpha1.OffloadingPhaseAllFailed, v1alpha1.OffloadingPhaseSomeFailed:
			phase.Colour = screen.Red
		case "":
			phase.Text = "-"
		}
		var names []string
		for _, at := range n.Clusters {
			name := at.Name
			if at.Onward {
				name += " (onward)"
			}
			names = append(names, name)
		}
		if len(names) == 0 {
			names = []string{"-"}
		}
		rows = append(rows, []screen.Cell{{Text: n.Namespace}, {Text: string(n.Strategy)}, phase, {Text: strings.Join(names, ", ")},
			{Text: strconv.Itoa(n.Pods)}, {Text: strconv.Itoa(n.Offloaded)}, {Text: strconv.Itoa(n.Outdated)}})
		reaches = append(reaches, n.Reachability)
	}
	titles, rows := withReach([]string{"NAMESPACE", "STRATEGY", "PHASE", "CLUSTERS", "PODS", "AWAY", "OLDER"}, rows, reaches)
	if err := screen.Table(v.out, v.paint, v.width, titles, rows); err != nil {
		return err
	}
	for _, n := range namespaces {
		if len(n.Services) > 0 {
			fmt.Fprintf(v.out, "there also without a pod, of %s: %s\n", n.Namespace, servicesText(n.Services))
		}
	}
	return nil
}

// servicesText names some Services.
func servicesText(names []string) string {
	const most = 5
	text := choose(len(names), "Service ", "Services ") + strings.Join(names[:min(len(names), most)], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// requests shows each request, if they are to be shown.
func (v view) requests(title string, list []RequestReport) error {
	if !v.detailed || len(list) == 0 {
		return nil
	}
	fmt.Fprintf(v.out, "\n%s:\n", title)
	var rows [][]screen.Cell
	for _, r := range list {
		asked, offered, accepted := "all that is free", "-", screen.Cell{Text: "no", Colour: screen.Yellow}
		if len(r.Asked) > 0 {
			asked = chain.Amounts(r.Asked)
		}
		if len(r.Offered) > 0 {
			offered = chain.Amounts(r.Offered)
		}
		if r.Accepted {
			accepted = screen.Cell{Text: "yes", Colour: screen.Green}
		}
		reason := r.Reason
		if reason == "" {
			reason = "-"
		}
		rows = append(rows, []screen.Cell{{Text: r.Name}, {Text: asked}, {Text: offered}, accepted, {Text: reason}})
	}
	return screen.Table(v.out, v.paint, v.width, []string{"REQUEST", "ASKED", "OFFERED", "ACCEPTED", "REASON"}, rows)
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

// offers is the sum of what is offered, by the resources people look for first.
func offers(list []OfferReport) string {
	cpu, memory, open := resource.Quantity{}, resource.Quantity{}, 0
	for _, offer := range list {
		cpu.Add(offer.Resources["cpu"])
		memory.Add(offer.Resources["memory"])
		if !offer.Accepted {
			open++
		}
	}
	tenths := cpu.MilliValue() / 100
	text := strings.TrimSuffix(fmt.Sprintf("%d.%d", tenths/10, tenths%10), ".0") + " cpu, " + chain.Amount("memory", memory)
	if len(list) > 1 {
		text = fmt.Sprintf("%d offers: %s", len(list), text)
	}
	switch {
	case open == 0:
		return text
	case len(list) == 1:
		return text + " (open)"
	}
	return fmt.Sprintf("%s (%d open)", text, open)
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

// contact is when a cluster was last heard of.
// contact is when another cluster was heard of, and how it is spoken with.
func contact(live bool, last *metav1.Time, now time.Time, inBand bool) string {
	text := ago(last, now)
	if live {
		text = "now"
	}
	if inBand {
		text += ", in band"
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
