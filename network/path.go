package network

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// An end's part of direct paths: which of those that tenants of this cluster want it lets be, or its
// providers for what runs behind them, and the key, the port and the endpoints of each. Its own end only;
// who wants the path tells of the other one.

// path is a direct path that a tenant, or a provider, wants.
type path struct {
	object *v1alpha1.NetworkPath
	// key is that of its tunnel.
	key string
	// of is the pair of who wants it, and front the same as what is in front of the path's tunnel sees it: the
	// path has the gateway of the pair.
	of, front *pair
	// reason and text are why it cannot be; empty if it can.
	reason, text string
}

// pathsThere are the direct paths that tenants want, in order, and that are not being removed.
func (r *decider) pathsThere(ctx context.Context) ([]*v1alpha1.NetworkPath, error) {
	list := &v1alpha1.NetworkPathList{}
	if err := r.client.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing network paths: %w", err)
	}
	var all []*v1alpha1.NetworkPath
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp == nil && strings.HasPrefix(o.Namespace, v1alpha1.TenantNamespacePrefix) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.NetworkPath) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all, nil
}

// takePaths takes over the paths of tenants and providers that have a network, and judges each. What
// none of those wants is not answered, and has no key.
func (f *facts) takePaths(there []*v1alpha1.NetworkPath) {
	peers := map[string]*pair{}
	for _, p := range f.pairs {
		if !p.wanted {
			continue
		}
		peers[p.namespace] = p
		if p.consumes && p.provider != nil {
			said := p.provider.Paths()
			for i := range said {
				there = append(there, &said[i])
			}
		}
	}
	counts, taken := map[*pair]int{}, map[*pair][]string{}
	for _, o := range there {
		of := peers[o.Namespace]
		if of == nil {
			continue
		}
		p := &path{object: o, key: v1alpha1.NetworkPathKey(o.Namespace, o.Name), of: of}
		p.front = &pair{key: of.key, peer: p.key, wanted: true, front: pathFront(p.key)}
		p.reason, p.text = judge(o.Spec, of, taken[of], f.now)
		if p.reason == "" || p.reason == v1alpha1.ReasonPrefixesRefused {
			if counts[of]++; counts[of] > v1alpha1.MaxNetworkPaths {
				p.reason, p.text = v1alpha1.ReasonLimitExceeded, fmt.Sprintf("there are more than %d paths of this peering, of which the first by name are taken: remove some", v1alpha1.MaxNetworkPaths)
			}
		}
		if p.reason == "" {
			taken[of] = append(taken[of], o.Spec.Prefixes...)
		}
		f.paths = append(f.paths, p)
	}
}

// judge says why a path cannot be, by what the other side says of it; empty if it can. It names
// nothing of ours. What others of its paths lead to is taken.
func judge(s v1alpha1.NetworkPathSpec, of *pair, taken []string, now time.Time) (reason, text string) {
	kind := "Tenant"
	if of.consumes {
		kind = "Peering"
	}
	switch {
	case !of.direct:
		return v1alpha1.ReasonNotAllowed, "this cluster allows no direct paths: ask its owner to set spec.directPaths of the " + kind
	case of.reach == v1alpha1.ReachNone:
		return v1alpha1.ReasonNotAllowed, "this cluster lets no pods of this peering be reached: ask its owner to change spec.reachability of the " + kind
	case !now.Before(s.Until.Time):
		return v1alpha1.ReasonPathEnded, "spec.until has passed: set a later time if the path is wanted still"
	}
	if text := refusedPrefixes(s.Prefixes, of, taken); text != "" {
		return v1alpha1.ReasonPrefixesRefused, clean(text)
	}
	if len(s.Endpoints) > maxTheirs {
		return v1alpha1.ReasonInvalid, fmt.Sprintf("spec.endpoints: there are %d, at most %d", len(s.Endpoints), maxTheirs)
	}
	for _, e := range s.Endpoints {
		if !endpoint(e) {
			return v1alpha1.ReasonInvalid, clean(fmt.Sprintf("spec.endpoints: %.80q is not HOST:PORT", e))
		}
	}
	if s.PublicKey != "" && !keyText.MatchString(s.PublicKey) {
		return v1alpha1.ReasonInvalid, "spec.publicKey: is no public key in base64"
	}
	return "", ""
}

// refusedPrefixes says what is wrong with the prefixes of a path: each is one that the other side
// publishes, a provider as what is not its own, that is seen here by another or by itself, and that no other path leads to.
func refusedPrefixes(all []string, of *pair, taken []string) string {
	if len(all) == 0 || len(all) > v1alpha1.MaxNetworkPathPrefixes {
		return fmt.Sprintf("spec.prefixes: there are %d; give 1 to %d", len(all), v1alpha1.MaxNetworkPathPrefixes)
	}
	theirs := of.theirs()
	if theirs == nil {
		return "spec.prefixes: spec.pods of the NetworkConfig has none of them yet: publish them there first"
	}
	seen := map[netip.Prefix]bool{}
	for _, v := range parsed(theirs.Status.Views) {
		seen[v.Real] = true
	}
	for i, text := range all {
		p, err := netip.ParsePrefix(text)
		switch {
		case err != nil || len(text) > maxRange || p != p.Masked():
			return fmt.Sprintf("spec.prefixes: %.60q is no prefix; write one like 10.42.0.0/16", text)
		case slices.Contains(all[:i], text):
			return fmt.Sprintf("spec.prefixes: %s is there twice: leave one out", text)
		case !slices.Contains(theirs.Spec.Pods, text):
			return fmt.Sprintf("spec.prefixes: %s is none of spec.pods of the NetworkConfig: publish it there first", text)
		case of.consumes && !slices.Contains(theirs.Spec.Transit, text):
			return fmt.Sprintf("spec.prefixes: %s is none of spec.transit of the NetworkConfig: only what runs behind a provider has a path past it", text)
		case !seen[p]:
			return fmt.Sprintf("spec.prefixes: %s has no view here: see status of the NetworkConfig", text)
		case slices.Contains(taken, text):
			return fmt.Sprintf("spec.prefixes: another path leads to %s already: remove one of both", text)
		}
	}
	return ""
}

// endpoint says whether a text is HOST:PORT of a host that may be called.
func endpoint(text string) bool {
	if len(text) > maxHost || oneLine(text, maxHost) != text {
		return false
	}
	_, port, err := home.ParseEndpoint(text)
	if err != nil || port == 0 {
		return false
	}
	_, _, err = tunnel.SplitEndpoint(text)
	return err == nil
}

// keeps says whether a path has a key and a port, or is to have: those that can be, and as long as
// the consumer may put right what it says also what has some.
func (p *path) keeps(have lock) bool {
	switch p.reason {
	case "":
		return true
	case v1alpha1.ReasonPrefixesRefused, v1alpha1.ReasonInvalid:
		return !have.key.IsZero()
	}
	return false
}

// lock is the lock of a path: the one there is, or a new one. It is never replaced: a path does not
// live long.
func (p *path) lock(have lock, now time.Time, fresh func() (tunnel.Secret, error)) (lock, error) {
	if !p.keeps(have) {
		return lock{}, nil
	}
	if !have.key.IsZero() {
		return have, nil
	}
	l, _, err := have.turn("", false, now, fresh)
	return l, err
}

// pathPorts are the ports that paths have, in their order: of those alone that are to have one.
func (f *facts) pathPorts() (have []int32) {
	for _, p := range f.paths {
		if p.keeps(f.locks[p.key]) {
			have = append(have, p.object.Status.Port)
		}
	}
	return have
}

// pathFront is the name of the Service in front of a path's tunnel. The key has dots, and is longer
// than names of Services may be.
func pathFront(key string) string {
	sum := sha256.Sum256([]byte(key))
	return frontPrefix + "path-" + hex.EncodeToString(sum[:16])
}

// answerPaths is what is said of each path: to a provider in the status of what it publishes. While keys
// are not known it is what was said: without a key nobody would keep the path.
func (d *decision) answerPaths(f *facts, ports []int32) {
	d.paths = map[*path]v1alpha1.NetworkPathStatus{}
	if f.locks == nil {
		for p, s := range d.statuses {
			s.ConsumerPaths = p.theirs().Status.ConsumerPaths
			d.statuses[p] = s
		}
		return
	}
	for _, p := range f.paths {
		port := int32(0)
		if p.keeps(f.locks[p.key]) {
			port, ports = ports[0], ports[1:]
		}
		said := d.answerPath(f, p, port)
		if !p.of.consumes {
			d.paths[p] = said
			continue
		}
		s := d.statuses[p.of]
		s.ConsumerPaths = append(s.ConsumerPaths, v1alpha1.ConsumerPathStatus{Name: p.object.Name, NetworkPathStatus: said})
		d.statuses[p.of] = s
	}
}

func (d *decision) answerPath(f *facts, p *path, port int32) v1alpha1.NetworkPathStatus {
	o, l := p.object, f.locks[p.key]
	s := v1alpha1.NetworkPathStatus{
		ObservedGeneration: o.Generation, Used: used(f.agents, p.key, o.Status.Used, f.now), Conditions: slices.Clone(o.Status.Conditions),
	}
	not := func(reason, text string) {
		status.False(&s.Conditions, o.Generation, v1alpha1.ConditionReady, reason, text)
	}
	if !l.key.IsZero() && port != 0 {
		s.PublicKey, s.Port, s.Endpoints = l.key.Public().String(), port, d.called(f, p.front, port)
	}
	switch {
	case p.reason != "":
		not(p.reason, p.text)
	case l.key.IsZero():
		not(v1alpha1.ReasonWaiting, "this end has no key yet")
	case port == 0:
		not(v1alpha1.ReasonLimitExceeded, "no port is left here for one more path")
	case o.Spec.PublicKey == "":
		not(v1alpha1.ReasonWaiting, "the other end has said no key yet: spec.publicKey is empty")
	case o.Spec.PublicKey == s.PublicKey:
		not(v1alpha1.ReasonInvalid, "spec.publicKey: is the key of this end; give the other end's")
	case !alive(f.agents, p.key):
		not(v1alpha1.ReasonTunnelDown, "nothing comes back through the tunnel to the other end")
	default:
		status.True(&s.Conditions, o.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	}
	return s
}

// used is when a path carried something last, to the minute, by what agents that live say. It never
// goes back, nor ahead of now, so that it changes once a minute at most.
func used(agents []agent, key string, before *metav1.Time, now time.Time) *metav1.Time {
	latest := time.Time{}
	for _, a := range agents {
		if u := a.reports[key].Used; a.alive && u != nil && u.After(latest) {
			latest = u.Time
		}
	}
	if latest.After(now) {
		latest = now
	}
	latest = latest.UTC().Truncate(time.Minute)
	if latest.IsZero() || before != nil && !latest.After(before.Time) {
		return before
	}
	return &metav1.Time{Time: latest}
}

// applyPaths writes what was decided of paths. One that is gone meanwhile tells of that itself.
func (r *decider) applyPaths(ctx context.Context, d *decision, note func(error)) {
	for p, s := range d.paths {
		if equality.Semantic.DeepEqual(p.object.Status, s) {
			continue
		}
		after := p.object.DeepCopy()
		after.Status = s
		err := client.IgnoreNotFound(r.client.Status().Patch(ctx, after, client.MergeFrom(p.object)))
		if err == nil {
			r.note(after)
		} else {
			err = fmt.Errorf("answering for path %s in %s: %w", p.object.Name, p.object.Namespace, err)
		}
		note(err)
	}
}
