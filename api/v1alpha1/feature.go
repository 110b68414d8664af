package v1alpha1

import (
	"slices"
	"strings"
)

// Features are words by which two builds find out what both know; ClusterInfo carries
// them. A word never changes its meaning: what means more gets another word. Whoever
// writes at a peer what older builds do not know asks for its word first.
const (
	// FeaturePeering is the handshake, Identity and the tenant namespace.
	FeaturePeering = "peering/v1"
	// FeatureOffers is ResourceRequests and ResourceOffers.
	FeatureOffers = "offers/v1"
	// FeatureNetwork is NetworkConfigs, and the tunnel that they describe. Only clusters
	// whose network is on say it.
	FeatureNetwork = "network/v1"
	// FeatureNetworkPolicy is that gateways go by NetworkRules. Only clusters whose network is
	// on say it.
	FeatureNetworkPolicy = "networkpolicy/v1"
	// FeatureDirectPaths is NetworkPaths. Only clusters whose network is on say it.
	FeatureDirectPaths = "directpaths/v1"
	// FeaturePathsBehind is direct paths between a tenant and a provider of one cluster: that
	// NetworkPaths say whose pods they are for, and NetworkConfigs which ones a provider makes for its
	// tenant. Only clusters whose network is on say it.
	FeaturePathsBehind = "directpaths.behind/v1"
	// FeatureCallers is that a provider's gateways let begin what its owner has named as callers. Only clusters
	// whose network is on say it.
	FeatureCallers = "callers/v1"
	// FeatureOnward is that NamespaceMaps say whether pods may go onward, and where they were made.
	FeatureOnward = "onward/v1"
	// FeatureDomains is that NamespaceMaps say what home is called in its own DNS.
	FeatureDomains = "domains/v1"
	// FeatureServiceFamilies is that Services say which families of addresses they have.
	FeatureServiceFamilies = featureReflection + "service.ipfamilies/v1"
	// FeatureParts is that an object may be on several ShadowObjects.
	FeatureParts = featureReflection + "parts/v1"
	// featureReflection begins the words of the kinds that travel.
	featureReflection = "reflection."
)

// unsaidKinds are what builds keep for their consumers that say no word of reflection:
// they are older than these words. No kind is ever added.
var unsaidKinds = []string{"ConfigMap", "Ingress", "PodDisruptionBudget", "Secret", "Service"}

// FeatureOfKind is the word of a build that keeps objects of a kind for its consumers, as
// reflection.service/v1.
func FeatureOfKind(kind string) string { return featureReflection + strings.ToLower(kind) + "/v1" }

// KeepsKind reports whether a build of these features keeps objects of a kind for its
// consumers.
func KeepsKind(features []string, kind string) bool {
	says := slices.ContainsFunc(features, func(f string) bool { return strings.HasPrefix(f, featureReflection) })
	if !says {
		return slices.Contains(unsaidKinds, kind)
	}
	return slices.Contains(features, FeatureOfKind(kind))
}

// MissingFeatures are those of this side's features that a peer does not know, in order. That
// its network is off does not make it older.
func MissingFeatures(here, there []string) []string {
	var missing []string
	for _, f := range here {
		unsaid := slices.ContainsFunc(unsaidKinds, func(kind string) bool { return FeatureOfKind(kind) == f && KeepsKind(there, kind) })
		off := f == FeatureNetwork || (f == FeatureNetworkPolicy || f == FeatureDirectPaths || f == FeaturePathsBehind || f == FeatureCallers) && !slices.Contains(there, FeatureNetwork)
		if !unsaid && !off && !slices.Contains(there, f) {
			missing = append(missing, f)
		}
	}
	slices.Sort(missing)
	return missing
}
