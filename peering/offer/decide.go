package offer

import (
	"cmp"
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

const (
	// lifetime of an offer; it is renewed at half.
	lifetime = 24 * time.Hour
	// withdrawnFor is how long a withdrawn offer is not made again.
	withdrawnFor = 30 * time.Second
	// writeEvery is the least time between two changes of one offer.
	writeEvery = time.Second
	// tinyEvery is the same for changes that hardly matter.
	tinyEvery = 30 * time.Second
	// maxRequests is how many requests of one tenant are looked at, the oldest ones. A
	// tenant may have 16 unless its owner says otherwise.
	maxRequests = 256
	// surplusMessage is said of the others.
	surplusMessage = "only the 256 oldest requests of a consumer are looked at; delete some of the others"
	// cordonedMessage is said of all offers of a cordoned tenant.
	cordonedMessage = "the provider accepts nothing new from this consumer now"
	// tiny is the share of an amount that hardly matters.
	tiny = 0.01
	// retryUnknown is when to ask again a reader that knew nothing.
	retryUnknown = 5 * time.Second
	// defaultSchedulingTimeout is how long pods may stay unschedulable.
	defaultSchedulingTimeout = 10 * time.Second
)

// facts are what an answer to one request depends on.
type facts struct {
	now      time.Time
	request  *v1alpha1.ResourceRequest
	offer    *v1alpha1.ResourceOffer // nil if there is none
	tenant   *v1alpha1.Tenant        // nil if there is none
	asks     []ask                   // of the tenant that share, this one among them
	read     Resources
	heard    bool // read is an answer
	unknown  bool // nothing is known of what is free
	surplus  bool // the tenant has maxRequests older requests
	written  time.Time
	settings home.Config
}

// action is what happens to an offer.
type action int

const (
	keep action = iota
	put
	remove
)

// answer is what a provider does about one request.
type answer struct {
	action  action
	spec    v1alpha1.ResourceOfferSpec // for put
	offered metav1.Condition
	stalled bool
	again   time.Duration // 0: when something changes
}

// yes and no set what is said about the offer.
func (a answer) yes(message string) answer {
	a.offered = metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonOffered, Message: message}
	return a
}

func (a answer) no(reason, message string) answer {
	a.offered = metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
	return a
}

// decide answers a request.
func decide(f facts) answer {
	if f.surplus {
		return answer{action: remove}.no(v1alpha1.ReasonInvalid, surplusMessage)
	}
	if f.tenant == nil {
		return answer{}.no(v1alpha1.ReasonWaiting, "waiting for the tenant")
	}
	if err := checkRequest(f.request.Spec); err != nil {
		return answer{action: remove, stalled: true}.no(v1alpha1.ReasonInvalid, err.Error())
	}
	switch {
	case f.tenant.Spec.State == v1alpha1.TenantDrained:
		return answer{action: remove}.no(v1alpha1.ReasonDrained, "the provider has removed what this consumer had, and offers nothing")
	case f.request.Spec.Decision == v1alpha1.DecisionDeclined:
		return answer{action: remove}.no(v1alpha1.ReasonDeclined, "the consumer has declined; the next offer follows another decision")
	case f.offer == nil && f.tenant.Spec.State == v1alpha1.TenantCordoned:
		return answer{}.no(v1alpha1.ReasonCordoned, cordonedMessage)
	case f.unknown && f.offer == nil:
		return answer{again: retryUnknown}.no(v1alpha1.ReasonWaiting, "the provider does not know yet what is free")
	case f.unknown:
		return lastGood(f).within(retryUnknown)
	}
	return decideAmount(f).within(f.read.Again)
}

// within has the answer looked at again so soon; 0 sets no time.
func (a answer) within(d time.Duration) answer {
	if d > 0 && (a.again == 0 || d < a.again) {
		a.again = d
	}
	return a
}

// lastGood goes on with the offer there is while nothing is known of what is free. What the
// owner has decided about the tenant holds nevertheless: one that is cordoned gets nothing
// new, and no offer is of more than the tenant's limits, less what the offer says is used.
// How much of these other requests of the tenant have is not known here.
func lastGood(f facts) answer {
	spec := *f.offer.Spec.DeepCopy()
	used := amountsOf(spec.Used)
	share := amountsOf(spec.Resources).within(limitsOf(f.tenant).minus(used))
	a := answer{}.yes("the offer is the last good one: the provider does not know now what is free")
	if f.tenant.Spec.State == v1alpha1.TenantCordoned {
		share = share.minus(share)
		a = a.no(v1alpha1.ReasonCordoned, cordonedMessage)
	} else if !share.plus(used).usable() {
		a = a.no(v1alpha1.ReasonNothingFree, "nothing is left of the last good offer, and the provider does not know now what is free")
	}
	if a.offered.Status == metav1.ConditionFalse && !accepted(f.request) {
		a.action = remove
		return a
	}
	spec.Resources, spec.Shapes = share.list(), shapesWithin(spec.Shapes, share)
	return settle(f, a, spec, false)
}

// withdrawn returns for how long an offer that somebody at the provider took back is
// not made again. Where there is nothing to offer, its absence says nothing: this
// program may have removed it, and have ended before it could write why.
func withdrawn(f facts, usable bool) time.Duration {
	last := meta.FindStatusCondition(f.request.Status.Conditions, v1alpha1.ConditionOffered)
	switch {
	case f.offer != nil, last == nil:
		return 0
	case last.Status == metav1.ConditionTrue && usable:
		return withdrawnFor
	case last.Reason == v1alpha1.ReasonWithdrawn:
		return withdrawnFor - f.now.Sub(last.LastTransitionTime.Time)
	}
	return 0
}

// decideAmount makes, changes or empties the offer.
func decideAmount(f facts) answer {
	free := amountsOf(f.read.Free)
	share := split(free, limitsOf(f.tenant), amountsOf(f.tenant.Status.Used).atLeast(f.read.usedByAll()), f.asks)[f.request.Name]
	used := amountsOf(f.read.Used[f.request.Name])
	cordoned := f.tenant.Spec.State == v1alpha1.TenantCordoned
	if cordoned {
		share = share.minus(share)
	}
	if left := withdrawn(f, share.usable()); left > 0 {
		return answer{again: left}.no(v1alpha1.ReasonWithdrawn, "the provider has taken the offer back; another one may follow soon")
	}
	a := answer{}.yes(f.read.Problem)
	if full := !share.plus(used).usable(); full || cordoned {
		a = a.no(nothing(f.read, free))
		if cordoned {
			a = a.no(v1alpha1.ReasonCordoned, cordonedMessage)
		}
		if f.offer == nil || !accepted(f.request) {
			a.action = remove
			return a
		}
	}
	spec := compose(f, share, used)
	if f.offer == nil {
		a.action, a.spec, a.again = put, spec, lifetime/2
		return a
	}
	ends := f.offer.Spec.Expires.Sub(f.now)
	a.again = ends - lifetime/2 + time.Second
	return settle(f, a, spec, ends < lifetime/2)
}

// settle puts what an offer shall be into the place of what it is, unless that is the same
// and need not be renewed. Changes have a least time between them.
func settle(f facts, a answer, spec v1alpha1.ResourceOfferSpec, renew bool) answer {
	kind := compare(f.offer.Spec, spec)
	wait := f.written.Add(writeEvery).Sub(f.now)
	if kind == changedLittle {
		wait = f.written.Add(tinyEvery).Sub(f.now)
	}
	switch {
	case kind == unchanged && !renew:
	case wait > 0 && wait <= tinyEvery && !renew:
		a.again = wait
	default:
		a.action, a.spec, a.again = put, spec, lifetime/2
	}
	return a
}

// limitsOf are how much of each resource a tenant may have; there is no limit of others.
func limitsOf(tenant *v1alpha1.Tenant) amounts {
	if tenant.Spec.Limits == nil {
		return amounts{}
	}
	return amountsOf(tenant.Spec.Limits.Resources)
}

// nothing says why there is nothing.
func nothing(read Resources, free amounts) (reason, message string) {
	switch {
	case read.External != nil && read.External.Reason == v1alpha1.ReasonOnlyUsed:
		return v1alpha1.ReasonNothingFree, read.Problem
	case read.Withheld != "":
		return v1alpha1.ReasonFiltered, "the provider's rules leave nothing for this consumer"
	case free.usable():
		return v1alpha1.ReasonNothingFree, "the consumer's limits or its other requests leave nothing for this one"
	}
	return v1alpha1.ReasonNothingFree, "the provider has nothing free now"
}

// compose makes the offer of a share beside what is used.
func compose(f facts, share, used amounts) v1alpha1.ResourceOfferSpec {
	timeout := f.settings.Offer.SchedulingTimeout
	timeout.Duration = cmp.Or(timeout.Duration, defaultSchedulingTimeout)
	spec := v1alpha1.ResourceOfferSpec{
		Resources: share.list(), Used: used.list(), Labels: maps.Clone(f.settings.Cluster.Labels), Price: f.settings.Offer.Price,
		StorageClasses: f.read.StorageClasses, IngressClasses: f.read.IngressClasses, LoadBalancerClasses: f.read.LoadBalancerClasses,
		SchedulingTimeout: &timeout, Expires: metav1.NewTime(f.now.Add(lifetime).Truncate(time.Second)),
	}
	spec.Shapes = shapesWithin(f.read.Shapes, share)
	return spec
}

// shapesWithin are the shapes with no pod larger than a share; none if it has room for none.
func shapesWithin(shapes []v1alpha1.NodeShape, share amounts) []v1alpha1.NodeShape {
	if !share.usable() {
		return nil
	}
	return refit(shapes, func(a amounts) amounts { return a.within(share) })
}

// accepted says whether the consumer has accepted.
func accepted(r *v1alpha1.ResourceRequest) bool {
	return r.Spec.Decision == v1alpha1.DecisionAccepted
}

// difference is how much two offers differ.
type difference int

const (
	unchanged difference = iota
	changedLittle
	changed
)

// compare compares two offers but for their expiry. What the consumer goes by is how much
// there is for the request in all: a pod that starts there takes from what is free as much
// as it adds to what is used, and hardly matters.
func compare(a, b v1alpha1.ResourceOfferSpec) difference {
	worst := compareAmounts(sum(a), sum(b), true)
	if !maps.Equal(amountsOf(a.Resources), amountsOf(b.Resources)) || !maps.Equal(amountsOf(a.Used), amountsOf(b.Used)) {
		worst = max(worst, changedLittle)
	}
	if usable(a) != usable(b) || len(a.Shapes) != len(b.Shapes) {
		return changed
	}
	for i := range a.Shapes {
		x, y := a.Shapes[i], b.Shapes[i]
		if x.Architecture != y.Architecture || x.OperatingSystem != y.OperatingSystem || x.Nodes != y.Nodes || len(x.Largest) != len(y.Largest) {
			return changed
		}
		for j := range x.Largest {
			worst = max(worst, compareAmounts(amountsOf(x.Largest[j]), amountsOf(y.Largest[j]), false))
		}
	}
	a.Resources, a.Used, a.Shapes, a.Expires = b.Resources, b.Used, b.Shapes, b.Expires
	if !equality.Semantic.DeepEqual(a, b) {
		return changed
	}
	return worst
}

// sum is what an offer has for its request, free and used.
func sum(spec v1alpha1.ResourceOfferSpec) amounts {
	return amountsOf(spec.Resources).plus(amountsOf(spec.Used))
}

// usable says whether an offer has room for one more pod.
func usable(spec v1alpha1.ResourceOfferSpec) bool { return amountsOf(spec.Resources).usable() }

// compareAmounts compares amounts. A change from or to nothing is never little, nor is one
// of pods where each counts.
func compareAmounts(a, b amounts, each bool) difference {
	if len(a) != len(b) {
		return changed
	}
	worst := unchanged
	for name, before := range a {
		after, ok := b[name]
		switch {
		case !ok:
			return changed
		case before == after:
		case before == 0, after == 0, each && name == string(corev1.ResourcePods):
			return changed
		case name != string(corev1.ResourcePods) && math.Abs(float64(after-before)) >= tiny*math.Abs(float64(before)):
			return changed
		default:
			worst = changedLittle
		}
	}
	return worst
}
