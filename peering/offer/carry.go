package offer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/status"
)

// maxMessage bounds what is repeated of a provider's words.
const maxMessage = 256

// carry brings a request to its provider and the offer home.
func (c *consumer) carry(ctx context.Context, request *v1alpha1.ResourceRequest, peering string) (ctrl.Result, error) {
	conditions, generation := &request.Status.Conditions, request.Generation
	meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStalled)
	if err := checkRequest(request.Spec); err != nil {
		stall(request, err.Error())
		return ctrl.Result{}, nil
	}
	peer, ok := c.fleet.Peer(peering)
	if !ok {
		status.False(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonWaiting, "waiting for the peering to be ready")
		return ctrl.Result{}, nil // the connection brings us back
	}
	if reachable, _, _ := peer.Reachable(); !reachable {
		status.False(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonPeerUnreachable, peering+" does not answer")
		return c.expire(ctx, request)
	}
	remote, err := c.remote(ctx, peer, request)
	if errors.Is(err, errNotRead) {
		status.False(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonPending, "reading what is at the provider")
		return ctrl.Result{}, nil // being read brings us back
	} else if err != nil {
		return ctrl.Result{}, err
	}
	offer, refusal := remote.received()
	now := c.clock.Now()
	decided := decideChoice(request.Spec, offer, remote.decision(), now)
	if err := c.send(ctx, peer, remote.request, request, decided.decision); err != nil {
		return c.notSent(request, peering, err)
	}
	status.True(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonReady, "")
	remote.report(request, offer, refusal, decided)
	wait, err := c.keepCopy(ctx, request, remote.offer, offer, peering)
	if err != nil || wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, err
	}
	if offer != nil && offer.expires.After(now) {
		return ctrl.Result{RequeueAfter: offer.expires.Sub(now)}, nil
	}
	return ctrl.Result{}, nil
}

// expire ends an accepted offer in time though its provider is away: by the copy here.
func (c *consumer) expire(ctx context.Context, request *v1alpha1.ResourceRequest) (ctrl.Result, error) {
	copied := kindOf("ResourceOffer")
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(request), copied); apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the copy of the offer: %w", err)
	}
	offer, err := sanitize(copied.Object)
	if err != nil {
		return ctrl.Result{}, nil // somebody wrote into the copy; it is put right when the peer is back
	}
	if left := offer.expires.Sub(c.clock.Now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	status.False(&request.Status.Conditions, request.Generation, v1alpha1.ConditionAccepted, v1alpha1.ReasonExpired, expired)
	return ctrl.Result{}, c.decorate(ctx, request, copied)
}

// stall says that the request itself is wrong.
func stall(request *v1alpha1.ResourceRequest, message string) {
	conditions, generation := &request.Status.Conditions, request.Generation
	status.False(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonInvalid, message)
	status.True(conditions, generation, v1alpha1.ConditionStalled, v1alpha1.ReasonInvalid, message)
}

// conclude derives Ready.
func conclude(request *v1alpha1.ResourceRequest) {
	status.Derive(&request.Status.Conditions, request.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonPending,
		v1alpha1.ConditionSent, v1alpha1.ConditionOffered, v1alpha1.ConditionAccepted)
}

// notSent turns an error of the provider into conditions.
func (c *consumer) notSent(request *v1alpha1.ResourceRequest, peering string, err error) (ctrl.Result, error) {
	conditions, generation := &request.Status.Conditions, request.Generation
	said := plainText(err.Error())
	switch {
	case apierrors.IsForbidden(err) && !kube.Uncounted(err), apierrors.IsUnauthorized(err):
		status.False(conditions, generation, v1alpha1.ConditionSent, kube.DenialOf(err).Reason(), peering+" refuses the request: "+said)
		return ctrl.Result{RequeueAfter: refusedRetry}, nil
	case kube.Uncounted(err):
		status.False(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonPending, peering+" has not counted yet what its quota counts")
	case apierrors.IsInvalid(err):
		stall(request, peering+" finds the request invalid: "+said)
		return ctrl.Result{}, nil
	case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err), apierrors.IsConflict(err):
		status.False(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonPending, "the copy at "+peering+" is being made")
	default:
		status.False(conditions, generation, v1alpha1.ConditionSent, v1alpha1.ReasonPeerUnreachable, peering+" does not take the request now")
	}
	return ctrl.Result{}, err
}

// plainText is a stranger's text as it may stand in a condition: short, one line,
// printable.
func plainText(text string) string {
	runes := []rune(strings.ToValidUTF8(text[:min(len(text), 4*maxMessage)], "?"))
	for i, r := range runes {
		if !unicode.IsPrint(r) {
			runes[i] = ' '
		}
	}
	return string(runes[:min(len(runes), maxMessage)])
}

// errNotRead says that the watch set has not been read yet.
var errNotRead = errors.New("not read yet")

// remoteState is what is at the provider of one request.
type remoteState struct {
	request *unstructured.Unstructured // nil if there is none
	offer   *unstructured.Unstructured // nil if there is none
}

// remote reads it from the watch set.
func (c *consumer) remote(ctx context.Context, peer Peer, request *v1alpha1.ResourceRequest) (remoteState, error) {
	var r remoteState
	key := client.ObjectKey{Namespace: peer.TenantNamespace(), Name: request.Name}
	for kind, to := range map[string]**unstructured.Unstructured{"ResourceRequest": &r.request, "ResourceOffer": &r.offer} {
		u := kindOf(kind)
		switch err := peer.Reader().Get(ctx, key, u); {
		case err == nil:
			*to = u
		case apierrors.IsNotFound(err):
		default:
			return r, fmt.Errorf("%w: %w", errNotRead, err)
		}
	}
	return r, nil
}

// kindOf returns an empty object of one of our kinds: what is a peer's is never
// parsed into types before it has been checked.
func kindOf(kind string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	return u
}

func remoteRequest(peer Peer, name string) *unstructured.Unstructured {
	u := kindOf("ResourceRequest")
	u.SetNamespace(peer.TenantNamespace())
	u.SetName(name)
	return u
}

// received returns the offer, nil if there is none or if it breaks a rule.
func (r remoteState) received() (*received, error) {
	if r.offer == nil || r.offer.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	offer, err := sanitize(r.offer.Object)
	if err != nil {
		return nil, err
	}
	return &offer, nil
}

// decision is what the provider was told last.
func (r remoteState) decision() v1alpha1.Decision {
	if r.request == nil {
		return ""
	}
	text, _, _ := unstructured.NestedString(r.request.Object, "spec", "decision")
	return v1alpha1.Decision(text)
}

// send makes or corrects the provider's copy; only the fields this side knows.
func (c *consumer) send(ctx context.Context, peer Peer, there *unstructured.Unstructured, request *v1alpha1.ResourceRequest, d v1alpha1.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	target := remoteRequest(peer, request.Name)
	if there == nil {
		fields := prune(changes(map[string]any{}, request.Spec, d))
		target.Object["spec"] = fields
		target.SetLabels(map[string]string{v1alpha1.LabelManagedBy: component})
		err := peer.Client().Create(ctx, target)
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		target = remoteRequest(peer, request.Name) // made, but not seen in the watch yet
		if err := peer.Client().Get(ctx, client.ObjectKeyFromObject(target), target); err != nil {
			return err
		}
		there = target
	}
	spec, _ := there.Object["spec"].(map[string]any)
	diff := changes(spec, request.Spec, d)
	if len(diff) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"spec": diff})
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	return peer.Client().Patch(ctx, remoteRequest(peer, request.Name), client.RawPatch(types.MergePatchType, patch))
}

// changes is the merge patch from what the provider has to what it should have.
func changes(there map[string]any, spec v1alpha1.ResourceRequestSpec, d v1alpha1.Decision) map[string]any {
	patch := map[string]any{}
	text := func(key, wanted string) {
		switch has, _ := there[key].(string); {
		case has == wanted:
		case wanted == "":
			patch[key] = nil
		default:
			patch[key] = wanted
		}
	}
	acceptance := spec.Acceptance
	if acceptance == "" {
		acceptance = v1alpha1.AcceptanceAutomatic
	}
	text("acceptance", string(acceptance))
	text("decision", string(d))
	has, _ := there["resources"].(map[string]any)
	resources := map[string]any{}
	for name, q := range spec.Resources {
		if old, err := takeQuantity(has[name]); err != nil || old.Cmp(q) != 0 {
			resources[name] = q.String()
		}
	}
	for name := range has {
		if _, wanted := spec.Resources[name]; !wanted {
			resources[name] = nil
		}
	}
	if len(resources) > 0 {
		patch["resources"] = resources
	}
	return patch
}

// prune makes an object of a patch.
func prune(patch map[string]any) map[string]any {
	for key, v := range patch {
		if v == nil {
			delete(patch, key)
		}
	}
	return patch
}

// believed are the reasons a provider may give; its words stand beside them.
var believed = []string{
	v1alpha1.ReasonCordoned, v1alpha1.ReasonDrained, v1alpha1.ReasonNothingFree, v1alpha1.ReasonFiltered,
	v1alpha1.ReasonWithdrawn, v1alpha1.ReasonInvalid, v1alpha1.ReasonWaiting, v1alpha1.ReasonDeclined,
}

// why is what the provider says about an offer that is not there or has nothing.
func (r remoteState) why() (reason, message string) {
	reason, message = v1alpha1.ReasonPending, "waiting for the provider's answer"
	if r.request == nil {
		return reason, message
	}
	conditions, _, _ := unstructured.NestedSlice(r.request.Object, "status", "conditions")
	for _, v := range conditions {
		c, _ := v.(map[string]any)
		said, _ := c["reason"].(string)
		words, _ := c["message"].(string)
		if c["type"] == v1alpha1.ConditionOffered && c["status"] != string(metav1.ConditionTrue) && slices.Contains(believed, said) {
			return said, plainText(words)
		}
	}
	return reason, message
}

// report writes the outcome into the request in memory.
func (r remoteState) report(request *v1alpha1.ResourceRequest, offer *received, refusal error, decided choice) {
	conditions, generation := &request.Status.Conditions, request.Generation
	reason, message := r.why()
	switch {
	case refusal != nil:
		reason, message = v1alpha1.ReasonInvalid, "the provider's offer breaks a rule: "+plainText(refusal.Error())
		status.False(conditions, generation, v1alpha1.ConditionOffered, reason, message)
	case offer == nil, !offer.usable():
		if offer != nil && reason == v1alpha1.ReasonPending {
			reason, message = v1alpha1.ReasonNothingFree, "the offer has nothing in it now"
		}
		status.False(conditions, generation, v1alpha1.ConditionOffered, reason, message)
	default:
		status.True(conditions, generation, v1alpha1.ConditionOffered, v1alpha1.ReasonOffered, "")
	}
	switch {
	case decided.accepted:
		status.True(conditions, generation, v1alpha1.ConditionAccepted, decided.reason, decided.message)
	case offer == nil && decided.decision == "":
		status.False(conditions, generation, v1alpha1.ConditionAccepted, reason, message)
	default:
		status.False(conditions, generation, v1alpha1.ConditionAccepted, decided.reason, decided.message)
	}
}
