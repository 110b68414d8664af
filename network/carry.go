package network

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/throttle"
)

const (
	// remoteLimit bounds one write at a provider.
	remoteLimit = 15 * time.Second
	// retryRefused is how soon a provider that refuses is asked again.
	retryRefused = time.Minute
	// copyRest is the least time between two copies of what a provider says.
	copyRest = 250 * time.Millisecond
)

// carrier brings what this cluster says as a consumer to its providers, and what these say
// home.
type carrier struct {
	client  client.Client
	clock   clock.PassiveClock
	fleet   Fleet
	refused *notes
	tell    func() // the decider
	retries throttle.Rests

	mu     sync.Mutex
	copied map[string]time.Time // when what a provider says was copied last
}

// both are the two NetworkConfigs of a peering here, and the provider's of the same names.
type both struct {
	consumer, provider           *v1alpha1.NetworkConfig
	farConsumer, farProvider     *unstructured.Unstructured
	consumerThere, providerThere bool
}

// Reconcile carries the NetworkConfigs of one peering.
func (c *carrier) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	namespace := v1alpha1.PeeringNamespace(req.Name)
	b := &both{consumer: &v1alpha1.NetworkConfig{}, provider: &v1alpha1.NetworkConfig{}}
	for name, into := range map[string]*v1alpha1.NetworkConfig{v1alpha1.NetworkConsumer: b.consumer, v1alpha1.NetworkProvider: b.provider} {
		err := c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
		if apierrors.IsNotFound(err) || err == nil && into.DeletionTimestamp != nil {
			c.forget(req.Name)
			return ctrl.Result{}, nil // their being made brings us back
		}
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("reading the network config %s: %w", name, err)
		}
	}
	peer, ok := c.fleet.Peer(req.Name)
	if !ok {
		return ctrl.Result{}, nil // the connection brings us back
	}
	if reachable, _, _ := peer.Reachable(); !reachable {
		return ctrl.Result{}, nil
	}
	b.farConsumer, b.farProvider = remoteConfig(peer.TenantNamespace(), v1alpha1.NetworkConsumer), remoteConfig(peer.TenantNamespace(), v1alpha1.NetworkProvider)
	for far, there := range map[*unstructured.Unstructured]*bool{b.farConsumer: &b.consumerThere, b.farProvider: &b.providerThere} {
		err := peer.Reader().Get(ctx, client.ObjectKeyFromObject(far), far)
		if err != nil && !apierrors.IsNotFound(err) {
			return ctrl.Result{}, nil // being read brings us back
		}
		*there = err == nil
	}
	if err := c.send(ctx, peer, b); err != nil {
		if apierrors.IsForbidden(err) && !kube.Uncounted(err) || apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err) {
			c.note(req.Name, req.Name+" refuses what this cluster publishes: "+oneLine(err.Error(), maxSaid))
			return ctrl.Result{RequeueAfter: retryRefused}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	wait, err := c.take(ctx, req.Name, b)
	if wait > 0 {
		return c.retries.Rest(req, wait), err
	}
	return ctrl.Result{}, err
}

// send writes at the provider what is this cluster's to say: the spec of the consumer, and
// what it makes of the provider's.
func (c *carrier) send(ctx context.Context, peer Peer, b *both) error {
	ctx, cancel := context.WithTimeout(ctx, remoteLimit)
	defer cancel()
	if b.consumerThere {
		if changes := difference(b.farConsumer.Object["spec"], public(b.consumer.Spec)); len(changes) > 0 && b.consumer.Spec.PublicKey != "" {
			if err := patch(ctx, peer.Client(), b.farConsumer, "spec", changes); err != nil {
				return fmt.Errorf("publishing at the provider: %w", err)
			}
		}
	}
	if !b.providerThere || b.provider.Status.ObservedGeneration != b.provider.Generation {
		return nil // what is said of it is about to be decided
	}
	if spec, err := receivedSpec(b.farProvider.Object); err != nil || !equality.Semantic.DeepEqual(spec, b.provider.Spec) {
		return nil // what is said here is of something else
	}
	said := b.provider.Status.DeepCopy()
	said.ObservedGeneration = b.farProvider.GetGeneration()
	for i := range said.Conditions {
		said.Conditions[i].ObservedGeneration = said.ObservedGeneration
	}
	if changes := difference(b.farProvider.Object["status"], *said); len(changes) > 0 {
		if err := patch(ctx, peer.Client(), b.farProvider, "status", changes); err != nil {
			return fmt.Errorf("answering the provider: %w", err)
		}
	}
	return nil
}

// public is what a peer is told of a spec: whom this cluster lets be reached and who calls, and by which address
// it calls its provider, is its own affair.
func public(s v1alpha1.NetworkConfigSpec) v1alpha1.NetworkConfigSpec {
	s.Reachability, s.Callers, s.InBand = "", nil, nil
	return s
}

// patch changes fields of the spec or the status of an object at the provider.
func patch(ctx context.Context, w client.Client, far *unstructured.Unstructured, part string, changes map[string]any) error {
	text, err := json.Marshal(map[string]any{part: changes})
	if err != nil {
		return err
	}
	target := remoteConfig(far.GetNamespace(), far.GetName())
	if part == "status" {
		return w.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, text))
	}
	return w.Patch(ctx, target, client.RawPatch(types.MergePatchType, text))
}

// difference is the merge patch that makes fields what they should be. Fields that this build
// does not know stay.
func difference[T any](have any, want T) map[string]any {
	fields, _ := have.(map[string]any)
	text, err := json.Marshal(want)
	if err != nil {
		return nil
	}
	var wanted map[string]any
	if err := json.Unmarshal(text, &wanted); err != nil {
		return nil
	}
	changes := map[string]any{}
	for _, name := range fieldsOf(want) {
		there, is := fields[name]
		value, should := wanted[name]
		switch {
		case is && !should:
			changes[name] = nil
		case should && !same(there, value):
			changes[name] = value
		}
	}
	return changes
}

// fieldsOf are the names of a type's fields in JSON.
func fieldsOf(of any) []string {
	var names []string
	t := reflect.TypeOf(of)
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("json")
		for j, r := range name {
			if r == ',' {
				name = name[:j]
				break
			}
		}
		names = append(names, name)
	}
	return names
}

// same compares values of JSON, however their numbers were read.
func same(a, b any) bool {
	left, errA := json.Marshal(a)
	right, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(left) == string(right)
}

// take copies what the provider says: the spec of its own object, and its answer to ours. It
// returns when to come again, if that has to wait.
func (c *carrier) take(ctx context.Context, peering string, b *both) (time.Duration, error) {
	spec, status := b.provider.Spec, b.consumer.Status
	if b.providerThere {
		next, err := receivedSpec(b.farProvider.Object)
		if err != nil {
			c.note(peering, oneLine(err.Error(), maxSaid))
		} else {
			c.note(peering, "")
			spec = next
		}
	}
	if b.consumerThere {
		current := len(difference(b.farConsumer.Object["spec"], public(b.consumer.Spec))) == 0
		status = receivedStatus(b.farConsumer.Object, b.consumer, current)
	}
	newSpec, newStatus := !equality.Semantic.DeepEqual(spec, b.provider.Spec), !equality.Semantic.DeepEqual(status, b.consumer.Status)
	if !newSpec && !newStatus {
		return 0, nil
	}
	if wait := c.rest(peering); wait > 0 {
		return wait, nil
	}
	if newSpec {
		after := b.provider.DeepCopy()
		after.Spec = spec
		if err := c.client.Patch(ctx, after, client.MergeFrom(b.provider)); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("copying what %s publishes: %w", peering, err)
		}
	}
	if newStatus {
		after := b.consumer.DeepCopy()
		after.Status = status
		if err := c.client.Status().Patch(ctx, after, client.MergeFrom(b.consumer)); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("copying the answer of %s: %w", peering, err)
		}
	}
	return 0, nil
}

// note tells the decider why nothing more is taken from a provider.
func (c *carrier) note(peering, text string) {
	if c.refused.set(peering, text) {
		c.tell()
	}
}

// rest is how long a copy has to wait; if it need not, it counts as made.
func (c *carrier) rest(peering string) time.Duration {
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := c.copied[peering].Add(copyRest).Sub(now); wait > 0 && wait <= copyRest {
		return wait
	}
	if c.copied == nil {
		c.copied = map[string]time.Time{}
	}
	c.copied[peering] = now
	return 0
}

func (c *carrier) forget(peering string) {
	c.mu.Lock()
	delete(c.copied, peering)
	c.mu.Unlock()
	c.note(peering, "")
}

// remoteConfig is an empty NetworkConfig.
func remoteConfig(namespace, name string) *unstructured.Unstructured {
	return remote("NetworkConfig", namespace, name)
}

// remote is an empty object of a kind: what is a peer's is never parsed into types before it has
// been checked.
func remote(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	if namespace != "" {
		u.SetNamespace(namespace)
		u.SetName(name)
	}
	return u
}
