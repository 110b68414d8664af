package reflection

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// grace is how long an object stays at a provider where no pod needs it any more, while
	// its namespace is offloaded.
	grace = time.Minute
	// rereadEvery is when an object is read again to see whether it has changed.
	rereadEvery = time.Minute
	// watchedEvery is the same for kinds that are watched.
	watchedEvery = 10 * time.Minute
	// rightsRetry is when is tried again what this cluster did not let us do yet, rightsMost the
	// same if it has not for long, and rightsTold when that is told.
	rightsRetry, rightsMost, rightsTold = 5 * time.Second, 5 * time.Minute, time.Minute
	// At most soonerBurst objects that are not there are looked for again soon at once, and soonerRate
	// a second; others with the next look, so that pods which need what is nowhere cost no more.
	soonerBurst, soonerRate = 100, 20
	// soon is when something is looked at again that is about to change.
	soon = time.Second
)

// found is what is known of an object at home.
type found int

const (
	unread found = iota // we may not read it, or not yet
	absent
	present
)

// facts are what is known of one object and one provider.
type facts struct {
	now  time.Time
	kind string
	// offloaded: the namespace is, so its objects may travel.
	offloaded bool
	wanted    bool // by pods that are bound there, or a rule
	found     found
	text      string                        // of a present one
	wrong     string                        // why a present one does not travel
	reason    string                        // of that, if the provider is what it is about
	cut       string                        // what of a present one stays, though it travels
	empty     bool                          // a present one has nothing to tell this provider
	counted   bool                          // what is told of a present one depends on more than is watched
	bereft    string                        // of a slice, the Service that lacks endpoints there as they have no address
	home      *metav1.PartialObjectMetadata // a present one, without content
	there     *v1alpha1.ShadowObject
	going     bool                     // what is there was deleted
	parts     []*v1alpha1.ShadowObject // of what is there, beyond the first; nil for one that is missing
	pieces    []string                 // of the text
	over      string                   // why what is present finds no room there, or what it has grown by
	unwanted  time.Time                // since when no pod needs it
	missing   time.Time                // since when one is not there that only who looks for it finds, if it may be looked for soon
	// known is what to remember of a present one that is in no cache. If that was known already, the object is fresh, and
	// due to be read again.
	known known
	due   time.Time
	// tokens: the object is the tokens of a pod, which are minted here. Fresh ones are
	// there and stay; the others were minted now. Both are due at renew.
	tokens, fresh bool
	renew         time.Time
	// barred is what this cluster does not let us do, if so, that long.
	barred    string
	barredFor time.Duration
	early     time.Duration // until it is tried again; nothing is decided before
}

// plan is what to do at the provider, and what to tell the owner of the object and the pods.
type plan struct {
	create, change, remove bool
	verdict
	again time.Duration
	// behind: what the provider shows is about to change, so that it is tried again.
	behind bool
}

// verdict is what a provider makes of an object, in our words.
type verdict struct {
	told string
	// reason is the word for it, empty if it is no matter of the provider's.
	reason string
	// refused: the object is not there, or not as it is at home now.
	refused bool
}

// decide says what to do about one object at one provider.
func decide(f facts) plan {
	switch {
	case !f.wanted && f.there == nil:
		return plan{}
	case !f.wanted && f.offloaded && !f.tokens && f.found == unread && f.now.Sub(f.unwanted) < grace:
		return plan{again: grace - f.now.Sub(f.unwanted)}
	case !f.wanted && f.going:
		return plan{again: rereadEvery}
	case !f.wanted:
		return plan{remove: true}
	case !f.offloaded || f.found == unread: // what is there stays
		return f.unread()
	case f.found == absent:
		return plan{remove: f.stays() != nil, verdict: verdict{told: "there is no such " + f.kind + " in this namespace"}, again: f.sought()}
	case f.over != "": // what is there stays
		return plan{verdict: verdict{f.over, v1alpha1.ReasonLimitExceeded, true}, again: rereadEvery}
	case f.wrong != "":
		return plan{remove: f.stays() != nil, verdict: verdict{f.wrong, f.reason, f.reason != ""}, again: rereadEvery}
	case f.empty:
		return plan{remove: f.stays() != nil, again: rereadEvery}
	case f.there == nil:
		return plan{create: true, verdict: verdict{told: f.cut}, again: f.again()}
	case f.going:
		return plan{behind: true}
	}
	change := !f.fresh && (f.there.Annotations[v1alpha1.AnnotationApplied] != hash(f.text) || f.shown() != shownBy(f.text, f.pieces))
	verdict := answer(f.kind, f.there)
	verdict.told = cmp.Or(verdict.told, f.cut)
	return plan{change: change, verdict: verdict, again: f.again()}
}

// unread is what is decided about an object that may not be read yet: rights come with the
// namespace, or a moment later, and are told of if they do not.
func (f facts) unread() plan {
	if !f.offloaded || f.barredFor < rightsTold {
		return plan{again: rightsRetry}
	}
	return plan{again: min(f.barredFor, rightsMost), verdict: verdict{told: "this cluster does not let Pelago " + f.barred +
		"; see that nothing takes away Pelago's RoleBindings in this namespace"}}
}

// stays is what is there, if it was not deleted.
func (f facts) stays() *v1alpha1.ShadowObject {
	if f.going {
		return nil
	}
	return f.there
}

// again is when to look at an object that is as it should be.
func (f facts) again() time.Duration {
	if f.tokens {
		return max(f.renew.Sub(f.now), soon)
	}
	if !f.due.IsZero() {
		return max(f.due.Sub(f.now), soon)
	}
	return rereadEvery
}

// sought is when to look for an object again that is not there: soon at first, as it may be made beside the pod
// that needs it, and ever later.
func (f facts) sought() time.Duration {
	if f.missing.IsZero() {
		return rereadEvery
	}
	return min(max(f.now.Sub(f.missing), soon), rereadEvery)
}

// annotations are what a ShadowObject says of its content.
func (f facts) annotations() map[string]string {
	all := map[string]string{v1alpha1.AnnotationApplied: hash(f.text)}
	if f.tokens {
		all[v1alpha1.AnnotationRenew] = f.renew.UTC().Format(time.RFC3339)
	}
	return all
}

// otherwise is what is told of what is at the provider, and is not quite the same, by the word
// of the condition; each word is for one kind.
var otherwise = map[string]struct{ kind, told string }{
	v1alpha1.ReasonFamilyMissing: {kindService, toldFamily},
	v1alpha1.ReasonTypeNotAllowed: {kindService, "there it is a ClusterIP, as the provider allows this cluster no other type; " +
		"to have node ports or load balancers there, ask the provider's owner for spec.services of its Tenant"},
	v1alpha1.ReasonSecretMissing: {kindIngress, "a Secret of its TLS is not there, so that it serves another certificate or none; " +
		"let the Secret travel: by a rule All in spec.reflection of the NamespaceOffloading, or with a pod that refers to it"},
}

// toldFull is what is told of what is not sent, as it could not be watched there.
const toldFull = "this cluster has as many objects there as it keeps, and no more are carried; keep home what its pods do not need, with spec.reflection of NamespaceOffloadings"

// toldFamily is what is told of a Service that is at the provider, and is not quite the same.
const toldFamily = "that cluster has no Services of its IP families, and there it is one of another family and leads to pods that run there only; give it a family that both clusters have"

// toldBereft is what is told of a Service with endpoints that the provider's pods cannot reach.
const toldBereft = "endpoints of it are left out, as no address in the network between the clusters stands for them (pods with hostNetwork, or what is made by hand outside of the published ranges); " +
	"make an IPMapping for what these are"

// answer puts into our words why a provider does not take what it was sent, or has it
// otherwise. Its own words are not repeated: they might hold what it was sent.
func answer(kind string, s *v1alpha1.ShadowObject) verdict {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted)
	switch {
	case c == nil || c.ObservedGeneration != s.Generation:
		return verdict{}
	case c.Status == metav1.ConditionTrue && otherwise[c.Reason].kind == kind:
		return verdict{told: otherwise[c.Reason].told, reason: c.Reason}
	case c.Status != metav1.ConditionFalse:
		return verdict{}
	}
	switch c.Reason {
	case v1alpha1.ReasonNamespaceMissing, v1alpha1.ReasonWaiting, v1alpha1.ReasonPending:
		return verdict{} // it waits
	case v1alpha1.ReasonNameTaken:
		return verdict{"the provider has a " + kind + " of this name that is not this cluster's; give yours another name", c.Reason, true}
	case v1alpha1.ReasonNotAdmitted:
		return verdict{"the provider's API server does not take it; ask the provider's owner about quotas and policies", c.Reason, true}
	}
	wrong := "the provider refuses it; ask the provider's owner, who sees the reason in the ShadowObject " + s.Name[:min(len(s.Name), 110)]
	if field := allowedBy[kind]; field != "" {
		wrong += "; without " + field + " of its Tenant a provider takes no " + kind + "; or keep it home: " + v1alpha1.AnnotationReflect + "=false"
	}
	return verdict{wrong, v1alpha1.ReasonRefused, true}
}

// allowedBy are the fields of a Tenant without which nothing of a kind is taken.
var allowedBy = map[string]string{kindBudget: "spec.disruptionBudgets", kindIngress: "spec.ingress"}

// hash tells two texts apart.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:32]
}
