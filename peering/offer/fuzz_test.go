package offer

import (
	"encoding/json"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// FuzzRemote: whatever a provider has made of this cluster's request and offer, what is
// said of it at home is short and plain, and one patch puts the request right.
func FuzzRemote(f *testing.F) {
	f.Add([]byte(`{"spec":{"acceptance":"Automatic","resources":{"cpu":"4"}},"status":{"conditions":[{"type":"Offered","status":"False","reason":"Cordoned","message":"a\u001bb"}]}}`), []byte(goodOffer))
	f.Add([]byte(`{"spec":{"acceptance":7,"decision":[],"resources":{"cpu":{},"memory":"1e999999999","x":null}}}`), []byte(`{"labels":7}`))
	f.Add([]byte(`{"spec":[],"status":{"conditions":[7,null,{"type":"Offered","status":"True","reason":"Offered"}]}}`), []byte(`null`))
	now := time.Unix(1_800_000_000, 0)
	spec := v1alpha1.ResourceRequestSpec{Resources: list(cpu, "2", memory, "1Gi")}
	f.Fuzz(func(t *testing.T, request, offer []byte) {
		var r remoteState
		var there, offered map[string]any
		if json.Unmarshal(request, &there) == nil && there != nil {
			there, _ = whole64(there).(map[string]any)
			r.request = &unstructured.Unstructured{Object: there}
		}
		if json.Unmarshal(offer, &offered) == nil && offered != nil {
			r.offer = &unstructured.Unstructured{Object: map[string]any{"spec": whole64(offered)}}
		}
		home := &v1alpha1.ResourceRequest{Spec: spec}
		got, refusal := r.received()
		decided := decideChoice(spec, got, r.decision(), now)
		r.report(home, got, refusal, decided)
		for _, c := range home.Status.Conditions {
			if len(c.Reason) == 0 || len(c.Reason) > 63 || utf8.RuneCountInString(c.Message) > maxMessage+64 {
				t.Fatalf("condition %+v", c)
			}
			for _, letter := range c.Message {
				if !unicode.IsPrint(letter) {
					t.Fatalf("%U in %q", letter, c.Message)
				}
			}
		}
		if r.request == nil {
			return
		}
		before, _ := there["spec"].(map[string]any)
		diff := changes(before, spec, decided.decision)
		after := merged(before, diff)
		if left := changes(after, spec, decided.decision); len(left) > 0 {
			t.Fatalf("after the patch %v of %v there is still %v to change", diff, before, left)
		}
	})
}

// merged is what a merge patch makes of an object.
func merged(object, patch map[string]any) map[string]any {
	out := map[string]any{}
	for key, v := range object {
		out[key] = v
	}
	for key, v := range patch {
		if below, ok := v.(map[string]any); ok {
			was, _ := out[key].(map[string]any)
			out[key] = merged(was, below)
			continue
		}
		if out[key] = v; v == nil {
			delete(out, key)
		}
	}
	return out
}
