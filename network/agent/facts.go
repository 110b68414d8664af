package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// facts are what is known of the cluster at one time. Nothing in them is changed.
type facts struct {
	self string
	// namespace is that of the agents.
	namespace string
	// mtus are those of nodes' devices, as far as they are known.
	mtus  map[string]int
	nodes []corev1.Node
	// heard is where this node has heard peers last, by the keys of their peerings.
	heard map[string]netip.Addr
	// alive are the nodes whose agents are.
	alive map[string]bool
	// is what this node is to the peerings, as far as it was found out, and serves that tunnels end here.
	is      standing
	serves  bool
	configs []v1alpha1.NetworkConfig
	keys    map[string][]byte
	// hosted are the pods of tenants here, and given the slices made for them.
	hosted []corev1.Pod
	given  []discoveryv1.EndpointSlice
	// groups are the two above as plans ask for them, nil as long as nobody has made them.
	groups *groups
	// away are the pods on virtual nodes, by node.
	away map[string][]corev1.Pod
	// maps say which namespaces a provider has part in, and home are the slices in these,
	// by namespace.
	maps []v1alpha1.NamespaceMap
	home map[string][]discoveryv1.EndpointSlice
	// inside are the pods of namespaces that say more or less of these than usual.
	inside map[string][]corev1.Pod
	// labelled are the pods that owners name as callers, by what selects them, and services those of namespaces
	// that let themselves be called by such.
	labelled map[string][]corev1.Pod
	services map[string][]corev1.Service
	// managers are the slices of this cluster's manager, and auth those of the authentication endpoint.
	managers, auth []discoveryv1.EndpointSlice
	// api are the slices of the API server here, and offloaded say which namespaces let tokens
	// for it travel.
	api       []discoveryv1.EndpointSlice
	offloaded []v1alpha1.NamespaceOffloading
	// mappings are what owners give to pods that may run elsewhere.
	mappings []v1alpha1.IPMapping
	// namespaces are those of tenants here, and rules the NetworkRules that hold, with what is wrong
	// with them.
	namespaces []corev1.Namespace
	rules      map[ruleKey]*ruleset
	wrongRules []plan.Problem
	// ruling are the namespaces of peerings in which there are NetworkRules, whether they hold or not.
	ruling map[string]bool
	// read is up to where the pods above are read.
	read map[stream]progress
	// now is when this is known, paths are the direct paths of all tenants, and carrying those, by
	// their keys, whose tunnels end here and can be relied upon.
	now      time.Time
	paths    []v1alpha1.NetworkPath
	carrying map[string]bool
}

// pair is the two sides' word of a peering.
type pair struct {
	namespace string
	role      plan.Role
	own, peer *v1alpha1.NetworkConfig
}

// pairs are the peerings with whom there is a network: both sides have said something.
func (f facts) pairs() map[string]*pair {
	all := map[string]*pair{}
	for i := range f.configs {
		c := &f.configs[i]
		role := plan.Consumer
		if strings.HasPrefix(c.Namespace, v1alpha1.TenantNamespacePrefix) {
			role = plan.Provider
		} else if !strings.HasPrefix(c.Namespace, v1alpha1.PeeringNamespacePrefix) {
			continue
		}
		p := all[c.Namespace]
		if p == nil {
			p = &pair{namespace: c.Namespace, role: role}
			all[c.Namespace] = p
		}
		switch {
		case c.Name == string(role):
			p.own = c
		case c.Name == v1alpha1.NetworkConsumer || c.Name == v1alpha1.NetworkProvider:
			p.peer = c
		}
	}
	for namespace, p := range all {
		if p.own == nil || p.peer == nil || p.own.DeletionTimestamp != nil || p.own.Spec.PublicKey == "" || p.peer.Spec.PublicKey == "" {
			delete(all, namespace)
		}
	}
	return all
}

// viewed are the views of peers, and the namespaces of their peerings, also where there is
// no network any more: what was published of them is not this cluster's.
func (f facts) viewed() map[string]string {
	all := map[string]string{}
	for i := range f.configs {
		c := &f.configs[i]
		if c.Name == v1alpha1.NetworkProvider && strings.HasPrefix(c.Namespace, v1alpha1.PeeringNamespacePrefix) ||
			c.Name == v1alpha1.NetworkConsumer && strings.HasPrefix(c.Namespace, v1alpha1.TenantNamespacePrefix) {
			for _, v := range c.Status.Views {
				all[v.View] = c.Namespace
			}
		}
	}
	return all
}

// virtual is the peering behind a virtual node.
func virtual(n *corev1.Node) (peering string, is bool) {
	return n.Labels[v1alpha1.LabelPeering], n.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
}

// secretOf finds the private key whose public half a side has published, and the entry that
// it is in.
func secretOf(keys map[string][]byte, namespace string, public string) (tunnel.Secret, string, error) {
	for _, entry := range []string{v1alpha1.NetworkKey(namespace), v1alpha1.NetworkNextKey(namespace)} {
		if secret, err := secretAt(keys, public, entry); err == nil {
			return secret, entry, nil
		}
	}
	return tunnel.Secret{}, "", errNoSecret(public)
}

// secretAt is the private key of an entry, if its public half is that.
func secretAt(keys map[string][]byte, public, entry string) (tunnel.Secret, error) {
	secret, err := tunnel.ParseSecret(strings.TrimSpace(string(keys[entry])))
	if err != nil || secret.Public().String() != public {
		return tunnel.Secret{}, errNoSecret(public)
	}
	return secret, nil
}

func errNoSecret(public string) error {
	return fmt.Errorf("the Secret %s has no private key for the public key %s", v1alpha1.NetworkKeysName, short(public))
}

// short bounds what others have written.
func short(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%.*q…", most, text)
	}
	return fmt.Sprintf("%q", text)
}

// prefixIn reports whether one of some prefixes holds an address.
func prefixIn(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
