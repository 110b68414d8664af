package claim

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// FuzzCluster: what passes is short, fit to be shown and the same after a journey; what
// does not is named by its field and not repeated.
func FuzzCluster(f *testing.F) {
	const id = "8f14e45f-ceea-4e7a-9c1d-0d5f3b6a1c2e"
	f.Add([]byte(`{"id":"` + id + `","name":"rome","version":"v0.3.0","kubernetesVersion":"v1.36.3","features":["offers/v1"]}`))
	f.Add([]byte(`{"id":"` + id + `","name":"rome\n","version":"\u202e"}`))
	f.Add([]byte(`{"id":"` + id + `","name":"a","features":["a","a"]}`))
	f.Add([]byte(`{"id":"` + strings.ToUpper(id) + `","features":[""]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var c v1alpha1.ClusterInfo
		if json.Unmarshal(text, &c) != nil {
			return
		}
		if err := Cluster(&c); err != nil {
			if !strings.HasPrefix(err.Error(), "spec.cluster.") || len(err.Error()) > 200 {
				t.Fatalf("%v does not name the field, or is long", err)
			}
			return
		}
		said, err := json.Marshal(c)
		if err != nil || len(said) > 10_000 {
			t.Fatalf("%d bytes pass, %v", len(said), err)
		}
		for _, r := range string(said) {
			if r > unicode.MaxASCII || unicode.IsControl(r) {
				t.Fatalf("%q passes", said)
			}
		}
		var back v1alpha1.ClusterInfo
		if json.Unmarshal(said, &back) != nil || Cluster(&back) != nil {
			t.Fatalf("%s is not taken again", said)
		}
	})
}
