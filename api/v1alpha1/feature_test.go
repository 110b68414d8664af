package v1alpha1

import (
	"slices"
	"testing"
)

// TestKeepsKind: builds from before the words of reflection are not taken for builds
// without it, and no other kind is sent to them.
func TestKeepsKind(t *testing.T) {
	for _, c := range []struct {
		reason   string
		features []string
		kind     string
		want     bool
	}{
		{"a build without such words is older than they", []string{FeatureOffers, FeaturePeering}, "Service", true},
		{"what came after the words has to be said", []string{FeatureOffers, FeaturePeering}, "EndpointSlice", false},
		{"it is said", []string{FeaturePeering, "reflection.endpointslice/v1"}, "EndpointSlice", true},
		{"whoever says one has to say all", []string{FeaturePeering, "reflection.secret/v1"}, "Service", false},
		{"another version is another word", []string{"reflection.service/v2"}, "Service", false},
	} {
		if got := KeepsKind(c.features, c.kind); got != c.want {
			t.Errorf("%s: %v keep %s: %v, want %v", c.reason, c.features, c.kind, got, c.want)
		}
	}
}

// TestMissingFeatures: only what a peer really lacks is named.
func TestMissingFeatures(t *testing.T) {
	here := []string{FeaturePeering, FeatureNetwork, FeatureNetworkPolicy, FeatureDirectPaths, FeatureOffers, FeatureOfKind("Service"), FeatureOfKind("EndpointSlice")}
	for _, c := range []struct {
		reason      string
		there, want []string
	}{
		{"a build like this one", here, nil},
		{"one whose network is off is no older", here[4:], []string{FeaturePeering}},
		{"a newer one", append([]string{"warp/v9"}, here...), nil},
		{"one from before the words", []string{FeatureOffers, FeaturePeering}, []string{"reflection.endpointslice/v1"}},
		{"one that says its kinds", []string{FeatureOffers, FeaturePeering, "reflection.secret/v1"}, []string{"reflection.endpointslice/v1", "reflection.service/v1"}},
		{"one that has its network on, and knows no policies", []string{FeatureNetwork, FeatureDirectPaths, FeatureOffers, FeaturePeering, FeatureOfKind("Service"), FeatureOfKind("EndpointSlice")}, []string{FeatureNetworkPolicy}},
		{"one that has its network on, and knows no direct paths", []string{FeatureNetwork, FeatureNetworkPolicy, FeatureOffers, FeaturePeering, FeatureOfKind("Service"), FeatureOfKind("EndpointSlice")}, []string{FeatureDirectPaths}},
		{"one that lacks more", []string{FeaturePeering}, []string{"offers/v1", "reflection.endpointslice/v1"}},
	} {
		if got := MissingFeatures(here, c.there); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.reason, got, c.want)
		}
	}
}
