package namespace

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

const (
	// maxNamespaces bounds how many namespaces a tenant can have, those included that
	// are being removed or kept, and how many entries of a map are looked at.
	maxNamespaces = 512
	// creations bounds how many namespaces are made in one look.
	creations = 32
	// keptEvery is how often a namespace is looked at that is not wanted and has volumes, or
	// keeps a level of Pod Security that is not the tenant's.
	keptEvery = 5 * time.Minute
)

// estate is what is known of a tenant's namespaces.
type estate struct {
	now     time.Time
	tenant  *v1alpha1.Tenant
	system  string
	desired *v1alpha1.NamespaceMap // nil if there is none
	// missingSince is when it was first seen that there is none.
	missingSince time.Time
	subject      *rbacv1.Subject              // the tenant, nil if it has no rights now
	ours         []*corev1.Namespace          // labelled for this tenant, by name
	existing     map[string]*corev1.Namespace // those, and others of names that are wanted
	bindings     map[string]*rbacv1.RoleBinding
	own          map[string]*rbacv1.RoleBinding // the manager's
	leaving      map[string]departure           // of ours that are not wanted
	onward       map[string]bool                // namespaces that may run at providers of this cluster's
}

// departure is how far a namespace is that is not wanted any more.
type departure struct {
	since  time.Time
	pods   int  // of ours in it
	claims bool // it holds volume claims
}

// entries are what the tenant asks for.
func (f *estate) entries() map[string]v1alpha1.NamespaceMapping {
	if f.desired == nil {
		return nil
	}
	return f.desired.Spec.Namespaces
}

// homes are the names at home in the order in which they are served.
func (f *estate) homes() []string {
	list := slices.Sorted(maps.Keys(f.entries()))
	return list[:min(len(list), maxNamespaces)]
}

// belongs says whether an existing namespace is this tenant's for a namespace at home.
func (f *estate) belongs(n *corev1.Namespace, home string) bool {
	return n.Labels[v1alpha1.LabelManagedBy] == component && n.Labels[v1alpha1.LabelTenant] == f.tenant.Name && n.Labels[v1alpha1.LabelHomeNamespace] == home
}

// claims says which namespace at home has a name here: the one it was made for, else the
// first that wants it. A drained tenant has none.
func (f *estate) claims() map[string]string {
	claimed := map[string]string{}
	if f.tenant.Spec.State == v1alpha1.TenantDrained {
		return claimed
	}
	for _, home := range f.homes() {
		name, no := remoteName(home, f.entries()[home], f.tenant, f.system)
		if no != (verdict{}) {
			continue
		}
		n := f.existing[name]
		if _, taken := claimed[name]; !taken || n != nil && f.belongs(n, home) {
			claimed[name] = home
		}
	}
	return claimed
}

// step is what to do about one namespace.
type step struct {
	home, name                                    string
	entry                                         v1alpha1.NamespaceMapping // what create and relabel go by
	create, relabel, bind, rebind, unbind, remove bool
	arm, rearm, disarm                            bool // the manager's own rights
	keepLevel                                     bool // relabel leaves the level of Pod Security
}

// arrangement is what to do, and what to say.
type arrangement struct {
	steps []step
	said  map[string]v1alpha1.MappedNamespace
	again time.Duration
	// onward are the namespaces here that may run at providers of this cluster's.
	onward map[string]bool
}

func (d *arrangement) in(t time.Duration) {
	if d.again == 0 || t < d.again {
		d.again = t
	}
}

func (d *arrangement) pending(home, name, message string) {
	if d.said[home].Phase == v1alpha1.MappingReady || d.said[home].Phase == v1alpha1.MappingPending {
		d.said[home] = v1alpha1.MappedNamespace{Name: name, Phase: v1alpha1.MappingPending, Reason: v1alpha1.ReasonPending, Message: message}
	}
}

// keepsLevel says of a namespace that it is not at the level of Pod Security that it is to have.
func (d *arrangement) keepsLevel(home string) {
	said := d.said[home]
	said.Message = "it keeps its level of Pod Security: " + errUnnamed.Error()
	d.said[home] = said
	d.in(keptEvery)
}

// arrange decides about all namespaces of a tenant.
func arrange(f *estate) *arrangement {
	d := &arrangement{said: map[string]v1alpha1.MappedNamespace{}, onward: f.onward}
	claimed := f.claims()
	d.retire(f, claimed)
	d.withdraw(f, claimed)
	made, total := 0, len(f.ours)
	for _, home := range f.homes() {
		left, leftBehind := d.said[home]
		said, s := f.serve(home, claimed, total)
		if s.create {
			if made++; made > creations {
				said = v1alpha1.MappedNamespace{Name: s.name, Phase: v1alpha1.MappingPending, Reason: v1alpha1.ReasonPending}
				s = step{}
				d.in(soon)
			} else {
				total++
			}
		}
		if s != (step{}) {
			d.steps = append(d.steps, s)
		}
		if leftBehind && f.tenant.Spec.State != v1alpha1.TenantDrained && said.Message == "" {
			said.Message = fmt.Sprintf("its earlier namespace %s is %s", left.Name, left.Phase)
		}
		if !leftBehind || f.tenant.Spec.State != v1alpha1.TenantDrained {
			d.said[home] = said
		}
	}
	return d
}

// serve decides about one entry. total is how many namespaces the tenant has.
func (f *estate) serve(home string, claimed map[string]string, total int) (v1alpha1.MappedNamespace, step) {
	refuse := func(reason, message string) (v1alpha1.MappedNamespace, step) {
		return v1alpha1.MappedNamespace{Phase: v1alpha1.MappingRefused, Reason: reason, Message: message}, step{}
	}
	name, no := remoteName(home, f.entries()[home], f.tenant, f.system)
	n := f.existing[name]
	switch {
	case no != (verdict{}):
		return refuse(no.reason, no.message)
	case f.tenant.Spec.State == v1alpha1.TenantDrained:
		return refuse(v1alpha1.ReasonDrained, "the provider has drained this tenant; ask its owner")
	case claimed[name] != home:
		return refuse(v1alpha1.ReasonNameTaken, fmt.Sprintf("namespace %s is that of %s, which you offload too; choose another name", name, claimed[name]))
	case n != nil && !f.belongs(n, home):
		return refuse(v1alpha1.ReasonNameTaken, fmt.Sprintf("the provider has a namespace %s that is not yours; choose another name, or ask its owner to remove it", name))
	case n == nil && f.tenant.Spec.State == v1alpha1.TenantCordoned:
		return refuse(v1alpha1.ReasonCordoned, "the provider accepts nothing new from this tenant; ask its owner")
	case n == nil && total >= f.limit():
		return refuse(v1alpha1.ReasonLimitExceeded, fmt.Sprintf("the provider lets this tenant have %d namespaces, those included that are kept or being removed; unoffload others, or ask its owner", f.limit()))
	}
	said := v1alpha1.MappedNamespace{Name: name, Phase: v1alpha1.MappingPending, Reason: v1alpha1.ReasonPending}
	switch {
	case n != nil && n.DeletionTimestamp != nil:
		said.Reason, said.Message = v1alpha1.ReasonTerminating, "waiting for the earlier namespace of this name to end"
		return said, step{}
	case f.subject == nil:
		said.Message = "waiting for the tenant's rights at the provider"
		return said, step{}
	}
	said.Phase, said.Reason = v1alpha1.MappingReady, v1alpha1.ReasonReady
	return said, f.mend(home, name, n)
}

// mend is what makes a wanted namespace as it should be.
func (f *estate) mend(home, name string, n *corev1.Namespace) step {
	s, entry := step{}, f.entries()[home]
	labels := mappedNamespace(name, home, entry, f.tenant).Labels
	switch {
	case n == nil:
		s.create = true
	case !contains(n.Labels, labels) || stale(n.Labels, labels):
		s.relabel = true
	}
	want, have := podsBinding(name, f.tenant, *f.subject), f.bindings[name]
	s.rebind = have != nil && have.RoleRef != want.RoleRef
	s.bind = have == nil || s.rebind || !equality.Semantic.DeepEqual(have.Subjects, want.Subjects)
	armed, arms := mappedBinding(name, f.tenant, f.system), f.own[name]
	s.rearm = arms != nil && arms.RoleRef != armed.RoleRef
	s.arm = !isAs(arms, armed)
	if s != (step{}) {
		s.home, s.name, s.entry = home, name, entry
	}
	return s
}

// limit is how many namespaces the tenant may have.
func (f *estate) limit() int {
	if l := f.tenant.Spec.Limits; l != nil && l.Namespaces != nil {
		return min(int(*l.Namespaces), maxNamespaces)
	}
	return maxNamespaces
}

// retire decides about namespaces that are not wanted: first the rights, then its pods,
// which go with their ShadowPods, then the namespace unless it holds volumes.
func (d *arrangement) retire(f *estate, claimed map[string]string) {
	for _, n := range f.ours {
		if claimed[n.Name] != "" {
			continue
		}
		home := n.Labels[v1alpha1.LabelHomeNamespace]
		if len(validation.IsDNS1123Label(home)) > 0 {
			continue // not by us
		}
		if f.desired == nil && f.now.Sub(f.missingSince) < patience {
			// The consumer makes its map again if that was lost.
			d.in(patience - f.now.Sub(f.missingSince))
			continue
		}
		left := f.leaving[n.Name]
		said := v1alpha1.MappedNamespace{Name: n.Name, Phase: v1alpha1.MappingTerminating, Reason: v1alpha1.ReasonTerminating}
		s := step{home: home, name: n.Name, unbind: f.bindings[n.Name] != nil}
		if _, consent := n.Labels[v1alpha1.LabelOnward]; consent && n.DeletionTimestamp == nil {
			s.relabel, s.keepLevel, s.entry = true, true, without(n)
		}
		switch {
		case n.DeletionTimestamp != nil:
			said.Message = "the namespace is being removed"
		case left.pods > 0 && f.now.Sub(left.since) < patience:
			said.Message = fmt.Sprintf("waiting for %d pods to end", left.pods)
			d.in(pollEvery)
		case left.claims:
			said.Phase, said.Reason = v1alpha1.MappingKept, v1alpha1.ReasonVolumesKept
			said.Message = keptWords(n.Name)
			d.in(keptEvery)
		default:
			s.remove = true
			said.Message = "the namespace is being removed"
		}
		if s.unbind || s.remove || s.relabel {
			d.steps = append(d.steps, s)
		}
		// Of several that were made for one namespace, what is kept is what people must see.
		if before, ok := d.said[home]; !ok || before.Phase != v1alpha1.MappingKept {
			d.said[home] = said
		}
	}
}

// withdraw takes the tenant's rights, and the manager's, in namespaces that have ceased to be the
// tenant's: somebody has taken our labels off.
func (d *arrangement) withdraw(f *estate, claimed map[string]string) {
	either := maps.Clone(f.bindings)
	maps.Copy(either, f.own)
	for _, name := range slices.Sorted(maps.Keys(either)) {
		if claimed[name] != "" && f.existing[name] == nil {
			continue // made a moment ago, and not seen yet
		}
		if !slices.ContainsFunc(f.ours, func(n *corev1.Namespace) bool { return n.Name == name }) {
			d.steps = append(d.steps, step{name: name, unbind: f.bindings[name] != nil, disarm: f.own[name] != nil})
		}
	}
}

// report writes the answer into the status.
func (d *arrangement) report(m *v1alpha1.NamespaceMap) {
	m.Status.ObservedGeneration = m.Generation
	for home, said := range d.said {
		said.Onward = said.Name != "" && d.onward[said.Name]
		d.said[home] = said
	}
	m.Status.Namespaces = d.said
	m.Status.Refusals = nil // the consumer's own, at its side
	open, refused := 0, 0
	for home := range m.Spec.Namespaces {
		switch d.said[home].Phase {
		case v1alpha1.MappingReady:
		case v1alpha1.MappingRefused:
			refused++
		default:
			open++
		}
	}
	conditions, generation := &m.Status.Conditions, m.Generation
	switch {
	case refused > 0:
		status.False(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonRefused, fmt.Sprintf("%d of %d namespaces are refused", refused, len(m.Spec.Namespaces)))
	case open > 0:
		status.False(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonPending, fmt.Sprintf("%d of %d namespaces are not ready yet", open, len(m.Spec.Namespaces)))
	default:
		status.True(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	}
}
