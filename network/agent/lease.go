package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// term is how often a Lease is renewed, and for how long it holds.
type term struct {
	every, holds time.Duration
}

// A gateway is missed at once, so its Lease is short. Those that come next are missed when it is gone.
var (
	gatewayTerm = term{600 * time.Millisecond, 2 * time.Second}
	nextTerm    = term{5 * time.Second, 15 * time.Second}
)

// All others cost an API server, and all agents, who see each renewal, as little as can be: they renew so
// many Leases a second together, as long as none of them is renewed more seldom than restMost. One that
// holds for longer than maxTerm would be taken for one that does not.
const (
	restPerSecond = 10
	restMost      = 40 * time.Second
)

// restTerm is that of the others, where so many agents live, in whole seconds as in a Lease.
func restTerm(agents int) term {
	every := time.Duration((agents+restPerSecond-1)/restPerSecond) * time.Second
	every = min(max(every, nextTerm.every), restMost)
	return term{every, min(3*every, maxTerm)}
}

// termOf is that of a node by what it is, where so many agents live. A node is gateway when it has become
// so, not as soon as it should.
func termOf(gateway bool, is standing, agents int) term {
	switch {
	case gateway:
		return gatewayTerm
	case is == isAlone || is == isIdle:
		return restTerm(agents)
	}
	return nextTerm
}

// patience is how long an answer is waited for: after it there has to be time for one more
// attempt.
func (t term) patience() time.Duration { return min((t.holds-t.every)/2, 3*time.Second) }

const (
	// againFirst is how soon a renewal that failed is tried again by who has something to lose, and
	// again and again. Others wait longer each time, up to againMost: while an API server has too much to do
	// theirs must not keep those back, who all are one user to it.
	againFirst = 300 * time.Millisecond
	againMost  = 5 * time.Second
	// ledFor is how long who was gateway has something to lose.
	ledFor = time.Minute
)

// pause is how long to wait after an attempt, from when that began, of which so many failed in a row. Where
// nothing hurries luck, from 0 to 1, makes it less, so that nodes which were held up together do not stay so.
func (t term) pause(failed int, hurries bool, luck float64) time.Duration {
	less := func(d time.Duration, by float64) time.Duration { return d - time.Duration(by*luck*float64(d)) }
	switch {
	case failed == 0 && hurries:
		return t.every
	case failed == 0:
		return less(t.every, 0.1)
	case hurries:
		return min(t.every, againFirst)
	}
	return less(min(againFirst<<min(failed-1, 10), againMost), 0.5)
}

// lease is this node's own.
type lease struct {
	client    *kube.Client
	namespace string
	node      string
	log       logr.Logger
}

// content is what a Lease says: nobody holds one that was left.
type content struct {
	holder string
	term   term
	now    time.Time
	// tunnels, networks, applied and mtu are annotations; nil leaves one as it is, and an empty one
	// removes it.
	tunnels, networks, applied, mtu *string
}

// silent says nothing but that its node lives.
func (c content) silent() bool {
	return c.tunnels == nil && c.networks == nil && c.applied == nil && c.mtu == nil
}

// patch is what makes a Lease say that.
func (c content) patch() ([]byte, error) {
	metadata := map[string]any{}
	annotations := map[string]any{}
	for key, text := range map[string]*string{
		v1alpha1.AnnotationTunnels: c.tunnels, v1alpha1.AnnotationNetworks: c.networks, v1alpha1.AnnotationAppliedPods: c.applied, v1alpha1.AnnotationMTU: c.mtu,
	} {
		switch {
		case text == nil:
		case *text == "":
			annotations[key] = nil
		default:
			annotations[key] = *text
		}
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	text, err := json.Marshal(map[string]any{
		"metadata": metadata,
		"spec": map[string]any{
			"holderIdentity": c.holder, "leaseDurationSeconds": int32(c.term.holds / time.Second),
			"renewTime": metav1.NewMicroTime(c.now),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("writing a patch of a Lease: %w", err)
	}
	return text, nil
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create;get;list;watch;patch;update,namespace=pelago-network,roleName=pelago-agent

// outcome is what became of what a Lease was to say. The zero value is that it says it.
type outcome struct {
	// made is that there was no Lease, and the new one says nothing of all this, and
	// refused that it was renewed without these.
	made, refused bool
}

// write makes the Lease say that, and makes it if there is none. A Lease ends with its Node. One
// whose annotations are refused, perhaps since others fill it, is renewed without them: the node
// must not lose its gateways by what it has to say.
func (l lease) write(ctx context.Context, c content) (outcome, error) {
	made, err := l.patch(ctx, c)
	if c.silent() || !apierrors.IsInvalid(err) && !apierrors.IsRequestEntityTooLargeError(err) {
		return outcome{made: made}, err
	}
	l.log.Info("what this node has to say is refused, and its Lease renewed without", "error", err.Error())
	c.tunnels, c.networks, c.applied, c.mtu = nil, nil, nil, nil
	made, err = l.patch(ctx, c)
	return outcome{made: made, refused: true}, err
}

func (l lease) patch(ctx context.Context, c content) (made bool, err error) {
	text, err := c.patch()
	if err != nil {
		return false, err
	}
	o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: v1alpha1.AgentLease(l.node)}}
	err = l.client.Patch(ctx, o, types.MergePatchType, text)
	if !apierrors.IsNotFound(err) || c.holder == "" {
		return false, err
	}
	node := &corev1.Node{}
	if err := l.client.Get(ctx, types.NamespacedName{Name: l.node}, node); err != nil {
		return false, fmt.Errorf("reading the Node of a Lease: %w", err)
	}
	seconds, now := int32(c.term.holds/time.Second), metav1.NewMicroTime(c.now)
	o = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.namespace, Name: v1alpha1.AgentLease(l.node), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.AgentName},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &c.holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
	}
	return true, l.client.Create(ctx, o)
}

// tenure is how long this node's own Lease holds, as this node can be sure of. It is pure.
type tenure struct {
	// ever says that it was renewed since this process began, and left that it was given up.
	ever, left bool
	until      time.Time
	// last is when the renewal began that was answered last.
	last time.Time
	// is is what this node is to others, by the last plan.
	is standing
	// led is when this node was last gateway, as far as is known.
	led time.Time
}

// hurries says whether a renewal that fails may cost something: this node is gateway, or was so lately.
func (t *tenure) hurries(gateway bool, now time.Time) bool {
	if gateway {
		t.led = now
	}
	return !t.led.IsZero() && now.Sub(t.led) < ledFor
}

// stands takes what this node is now, and reports whether it will be missed sooner than its Lease says.
func (t *tenure) stands(is standing) (sooner bool) {
	sooner = is >= isNext && (t.is == isAlone || t.is == isIdle)
	t.is = is
	return sooner
}

// renewed takes that a renewal, which began at a time, was answered.
func (t *tenure) renewed(began time.Time, holds time.Duration) {
	t.ever, t.until, t.last = true, began.Add(holds), began
}

// alive says whether this node may count itself among those that may be gateway. It does so
// for longer than its Lease holds: who cannot renew cannot know either whether others can.
func (t *tenure) alive() bool { return t.ever && !t.left }

// known says whether this node knows of itself what others know of it. One that has not renewed
// its Lease yet may be gateway by a renewal of an earlier process.
func (t *tenure) known() bool { return t.ever || t.left }

// doubt says whether others may have taken over what is this node's, if there are any.
func (t *tenure) doubt(now time.Time, others bool) bool {
	return t.ever && others && !now.Before(t.until)
}
