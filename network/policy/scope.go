package policy

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Scope is which pods the rules of one namespace's policies may be about. The zero value has none but those of
// the namespace "".
type Scope struct {
	namespace string
	// all says that any pod may be among them.
	all   bool
	peers []selected
}

// selected are pods in namespaces that are selected.
type selected struct{ in, pods labels.Selector }

// ScopeOf is that of a namespace's policies. What is not clear has all pods be in it.
func ScopeOf(namespace string, policies []networkingv1.NetworkPolicy) Scope {
	s := Scope{namespace: namespace}
	for i := range policies {
		for _, e := range policies[i].Spec.Ingress {
			s.add(e.From)
		}
		for _, e := range policies[i].Spec.Egress {
			s.add(e.To)
			if byName(e.Ports) { // it is about pods that have such a port, also where it names none
				s.all = s.all || len(e.To) == 0 || blocked(e.To)
			}
		}
	}
	return s
}

func (s *Scope) add(peers []networkingv1.NetworkPolicyPeer) {
	for i := range peers {
		p := &peers[i]
		if p.NamespaceSelector == nil {
			continue // blocks, or pods of the namespace, all of which are in the scope
		}
		in, err := metav1.LabelSelectorAsSelector(p.NamespaceSelector)
		if err != nil {
			s.all = true
			continue
		}
		pods := labels.Everything()
		if p.PodSelector != nil {
			if pods, err = metav1.LabelSelectorAsSelector(p.PodSelector); err != nil {
				s.all = true
				continue
			}
		}
		s.peers = append(s.peers, selected{in, pods})
	}
}

func byName(ports []networkingv1.NetworkPolicyPort) bool {
	for _, p := range ports {
		if p.Port != nil && p.Port.Type == intstr.String {
			return true
		}
	}
	return false
}

func blocked(peers []networkingv1.NetworkPolicyPeer) bool {
	for i := range peers {
		if peers[i].IPBlock != nil {
			return true
		}
	}
	return false
}

// Holds says whether rules may be about a pod, by its namespace, the labels of that, and its own.
func (s Scope) Holds(namespace string, in, pod map[string]string) bool {
	if s.all || namespace == s.namespace {
		return true
	}
	for _, p := range s.peers {
		if p.in.Matches(labels.Set(in)) && p.pods.Matches(labels.Set(pod)) {
			return true
		}
	}
	return false
}
