package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/network/policy"
)

const (
	// ruleRest is the least time between two looks at one namespace for one peering.
	ruleRest = 250 * time.Millisecond
	// ruleLimit bounds one look, all its writes together.
	ruleLimit = 30 * time.Second
	// untoldWait is how soon is tried again to say what nobody could be told.
	untoldWait = time.Minute
)

// ruleBounds is what a provider may show of NetworkRules, of which digests are kept. Older ones
// know none.
var ruleBounds = fleet.Bounds{Optional: true, Objects: v1alpha1.MaxNetworkRuleSet, Bytes: 2 << 20, Trim: digest}

// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=networkrules,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=namespaceoffloadings,verbs=get;list;watch

// ruler keeps NetworkRules as NetworkPolicies here want them: for each namespace that pods of
// a peering's provider are of, those of this cluster's gateways and those of the provider's.
// Its requests are a namespace, and as name the peering.
type ruler struct {
	client client.Client
	clock  clock.PassiveClock
	fleet  Fleet
	events events.EventRecorder
	// patience bounds what is written at a provider in one turn there.
	patience time.Duration
	turns    turns
	retries  throttle.Rests

	mu     sync.Mutex
	looked map[types.NamespacedName]time.Time
	told   map[types.NamespacedName]said
	// bound are those that have policies, and for which pods these matter.
	bound  map[types.NamespacedName]policy.Scope
	scenes scenes
}

// Reconcile compiles the policies of a namespace for one peering, and writes what differs.
func (r *ruler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, ruleLimit)
	defer cancel()
	if wait := r.rest(req.NamespacedName); wait > 0 {
		return r.retries.Rest(req, wait), nil
	}
	here, err := r.here(ctx, req.Namespace, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	g, err := r.gather(ctx, req.Namespace, req.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(g.policies) == 0 {
		r.unbind(req.NamespacedName)
	}
	specs, problems := policy.Compile(g.world(true)).Shards(req.Namespace, len(here.have))
	if err := here.make(ctx, specs); err != nil {
		return retried(&r.retries, req, err, "writing network rules of %s here", req.Namespace)
	}
	for i := range specs {
		here.amounts[req.Namespace] = here.amounts[req.Namespace].Plus(policy.AmountOf(&specs[i]))
	}
	if again := r.beyond(ctx, req.Name, here.amounts); again > 0 {
		defer func() {
			if err == nil && (result.RequeueAfter == 0 || again < result.RequeueAfter) {
				result.RequeueAfter = again
			}
		}()
	}
	if len(g.policies) > 0 && !g.known {
		return r.tell(ctx, req.NamespacedName, append(problems, req.Name+" knows no NetworkPolicies of other clusters: pods of this namespace there are guarded by the gateways here alone; upgrade it")), nil
	}
	there := r.there(ctx, req.Namespace, req.Name)
	if there == nil { // its being reached brings us back
		return r.tell(ctx, req.NamespacedName, problems), nil
	}
	specs, more := policy.Compile(g.world(false)).Shards(req.Namespace, len(there.have))
	for _, text := range more {
		if !slices.Contains(problems, text) {
			problems = append(problems, text)
		}
	}
	if wait := r.turns.take(req.Name, r.clock.Now()); wait > 0 {
		return r.retries.Rest(req, wait), nil
	}
	limited, end := context.WithTimeout(ctx, r.patience)
	defer end()
	err = r.turns.within(req.Name, r.clock.Now, func() error { return there.make(limited, specs) })
	switch {
	case apierrors.IsForbidden(err) && !kube.Uncounted(err) || apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err):
		r.tell(ctx, req.NamespacedName, append(problems, req.Name+" refuses the rules of this namespace: "+oneLine(err.Error(), maxSaid)))
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	case err != nil:
		return retried(&r.retries, req, err, "writing network rules of %s at %s", req.Namespace, req.Name)
	}
	return r.tell(ctx, req.NamespacedName, problems), nil
}

// rest is how long a look has to wait; if it need not, it counts as begun.
func (r *ruler) rest(of types.NamespacedName) time.Duration {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := r.looked[of].Add(ruleRest).Sub(now); wait > 0 && wait <= ruleRest {
		return wait
	}
	r.looked[of] = now
	return 0
}

// bind remembers for which pods a namespace is to be looked at again. It comes before pods are read: those that
// change meanwhile bring us back.
func (r *ruler) bind(of types.NamespacedName, scope policy.Scope) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bound[of] = scope
}

func (r *ruler) unbind(of types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.bound, of)
	delete(r.looked, of)
	if len(r.bound) == 0 {
		r.scenes.drop()
	}
}

// said is what was said last, and when.
type said struct {
	text string
	at   time.Time
}

// tell says what does not hold as it is written, once and then now and then while it is so. Its result
// brings us back for that, if nothing else does.
func (r *ruler) tell(ctx context.Context, of types.NamespacedName, problems []string) ctrl.Result {
	text, now := strings.Join(problems, "; "), r.clock.Now()
	r.mu.Lock()
	was := r.told[of]
	if text == "" {
		delete(r.told, of)
	}
	r.mu.Unlock()
	switch {
	case text == "":
		return ctrl.Result{}
	case was.text == text && !again(was.at, now):
		return ctrl.Result{RequeueAfter: was.at.Add(tellAgain).Sub(now)}
	}
	o := &v1alpha1.NamespaceOffloading{}
	if r.client.Get(ctx, client.ObjectKey{Namespace: of.Namespace, Name: v1alpha1.OffloadingName}, o) != nil {
		return ctrl.Result{RequeueAfter: untoldWait} // nobody was told
	}
	r.events.Eventf(o, nil, corev1.EventTypeWarning, v1alpha1.ReasonPolicyNotEnforced, "Guard", "%s", clean(text))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told[of] = said{text, now}
	return ctrl.Result{RequeueAfter: tellAgain}
}

// shelf are the NetworkRules of one namespace in one place, by their names.
type shelf struct {
	client    client.Client
	namespace string
	have      map[string]any
	// amounts are those of other namespaces, of rules here.
	amounts map[string]policy.Amount
}

// here are those for this cluster's gateways.
func (r *ruler) here(ctx context.Context, namespace, peering string) (*shelf, error) {
	s := &shelf{r.client, v1alpha1.PeeringNamespace(peering), map[string]any{}, map[string]policy.Amount{}}
	list := &v1alpha1.NetworkRulesList{}
	if err := r.client.List(ctx, list, client.InNamespace(s.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing network rules: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp != nil {
			continue
		}
		if other := namespaceOf(o); other != namespace {
			s.amounts[other] = s.amounts[other].Plus(policy.AmountOf(&o.Spec))
			continue
		}
		spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.Spec)
		if err != nil {
			return nil, fmt.Errorf("reading network rules %s: %w", o.Name, err)
		}
		s.have[o.Name] = spec
	}
	return s, nil
}

// there are those at the provider, nil while it cannot be asked.
func (r *ruler) there(ctx context.Context, namespace, peering string) *shelf {
	peer, ok := r.fleet.Peer(peering)
	if !ok {
		return nil
	}
	if reachable, _, _ := peer.Reachable(); !reachable {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NetworkRulesList"))
	if err := peer.Reader().List(ctx, list, client.InNamespace(peer.TenantNamespace())); err != nil {
		return nil // being read brings us back
	}
	s := &shelf{client: peer.Client(), namespace: peer.TenantNamespace(), have: map[string]any{}}
	for i := range list.Items {
		if o := &list.Items[i]; namespaceOf(o) == namespace && o.GetDeletionTimestamp() == nil {
			digest(o)
			s.have[o.GetName()] = o.Object["spec"]
		}
	}
	return s
}

// namespaceOf is the namespace at home that NetworkRules are of, by their name.
func namespaceOf(o client.Object) string {
	namespace, _, _ := strings.Cut(o.GetName(), ".")
	return namespace
}

// make makes, changes and removes NetworkRules until they are as wanted.
func (s *shelf) make(ctx context.Context, specs []v1alpha1.NetworkRulesSpec) error {
	wanted := map[string]bool{}
	for _, spec := range specs {
		o := &v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: v1alpha1.NetworkRulesName(spec.Namespace, spec.Shard)}}
		wanted[o.Name] = true
		have, there := s.have[o.Name]
		if !there {
			o.Labels, o.Spec = map[string]string{v1alpha1.LabelManagedBy: component}, spec
			if err := s.client.Create(ctx, o); err != nil {
				return err
			}
			continue
		}
		changes := changed(have, spec)
		if len(changes) == 0 {
			continue
		}
		text, err := json.Marshal(map[string]any{"spec": changes})
		if err != nil {
			return err
		}
		if err := s.client.Patch(ctx, o, client.RawPatch(types.MergePatchType, text)); err != nil {
			return err
		}
	}
	for name := range s.have {
		if wanted[name] {
			continue
		}
		o := &v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
		if err := s.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// digested is the field of a spec that stands for all others.
const digested = "digest"

// digest puts a digest in the place of a spec, if none is there already: specs are large, and
// whether they are as they should be is all that is asked of them.
func digest(o *unstructured.Unstructured) {
	if spec, ok := o.Object["spec"].(map[string]any); ok && spec[digested] != nil {
		return
	}
	o.Object["spec"] = map[string]any{digested: sumOf(o.Object["spec"])}
}

// sumOf is the same for values whose JSON means the same.
func sumOf(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	var plain any
	if json.Unmarshal(text, &plain) != nil {
		return ""
	}
	text, _ = json.Marshal(plain) // fields in order
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// changed are the fields that make a spec what it should be. Of a digest it is all or none.
func changed(have any, want v1alpha1.NetworkRulesSpec) map[string]any {
	fields, _ := have.(map[string]any)
	if fields[digested] == nil {
		return difference(have, want)
	}
	if fields[digested] == sumOf(want) {
		return nil
	}
	every := map[string]any{}
	for _, name := range fieldsOf(want) {
		every[name] = nil
	}
	return difference(every, want)
}

// inRanges says whether an address is in one of ranges.
func inRanges(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}
