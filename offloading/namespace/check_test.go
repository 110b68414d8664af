package namespace

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var wanted = map[string]v1alpha1.NamespaceMapping{"shop": {Strategy: v1alpha1.MappingDefaultName}}

func TestReceived(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, c := range []struct {
		reason, text string
		want         map[string]v1alpha1.MappedNamespace
	}{
		{"nothing", `{}`, nil},
		{"nonsense", `{"status":{"namespaces":[1]}}`, nil},
		{"an entry that is none", `{"status":{"namespaces":{"shop":7}}}`, nil},
		{"ready", `{"status":{"namespaces":{"shop":{"phase":"Ready","name":"shop-rome"}}}}`,
			map[string]v1alpha1.MappedNamespace{"shop": {Name: "shop-rome", Phase: "Ready"}}},
		{"ready by a name not asked for", `{"status":{"namespaces":{"shop":{"phase":"Ready","name":"kube-system"}}}}`,
			map[string]v1alpha1.MappedNamespace{"shop": {Phase: "Refused", Reason: "Invalid", Message: "the provider answers with a name that was not asked for; ask its owner which version of Pelago runs there"}}},
		{"an unknown phase", `{"status":{"namespaces":{"shop":{"phase":"Happy"}}}}`, nil},
		{"a long message with control characters", `{"status":{"namespaces":{"shop":{"phase":"Pending","message":"\u001b` + long + `"}}}}`,
			map[string]v1alpha1.MappedNamespace{"shop": {Phase: "Pending", Message: " " + long[:maxMessage-1]}}},
		{"a reason that is no word", `{"status":{"namespaces":{"shop":{"phase":"Refused","reason":"a b"}}}}`,
			map[string]v1alpha1.MappedNamespace{"shop": {Phase: "Refused", Reason: "Refused"}}},
		{"a reason that is ours", `{"status":{"namespaces":{"shop":{"phase":"Refused","reason":"Pending"}}}}`,
			map[string]v1alpha1.MappedNamespace{"shop": {Phase: "Refused", Reason: "Refused"}}},
		{"kept of an earlier time, and one of which the provider does not know yet that nobody wants it", `{"status":{"namespaces":{"old":{"phase":"Kept","name":"old-rome","reason":"Because","message":"` + long + `"},"new":{"phase":"Ready","name":"new-rome"},"A/B":{"phase":"Kept"}}}}`,
			map[string]v1alpha1.MappedNamespace{"old": {Name: "old-rome", Phase: "Kept", Reason: "VolumesKept"}, "new": {Name: "new-rome", Phase: "Terminating", Reason: "Terminating"}}},
	} {
		var obj map[string]any
		if err := json.Unmarshal([]byte(c.text), &obj); err != nil {
			t.Fatal(err)
		}
		got := received(obj, wanted, "rome").namespaces
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

// TestReceivedMessages: what a provider says in words is bounded in sum, whatever was asked for and whatever was not.
func TestReceivedMessages(t *testing.T) {
	said, asked := map[string]any{}, map[string]v1alpha1.NamespaceMapping{}
	words := strings.Repeat("\u00e4", 2*maxMessage)
	for i := range maxAnswers {
		name := fmt.Sprintf("n%03d", i)
		asked[name] = v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
		said[name] = map[string]any{"phase": "Refused", "reason": "Full", "message": words}
		said["x"+name] = map[string]any{"phase": "Refused", "reason": "R" + words[:40], "message": words}
	}
	obj := map[string]any{"status": map[string]any{"namespaces": said}}
	got, sum := received(obj, asked, "rome").namespaces, 0
	for name, m := range got {
		if sum += len(m.Message); name[0] == 'x' && m.Message != "" {
			t.Fatalf("%s, which nobody asked for: %q", name, m.Message)
		}
	}
	if first := got["n000"]; len([]rune(first.Message)) != maxMessage || got["n511"].Reason != "Full" || len(got) != 2*maxAnswers {
		t.Errorf("%d answers, the first is %+v, the last %+v", len(got), first, got["n511"])
	}
	if sum > maxMessages || sum < maxMessages/2 {
		t.Errorf("%d bytes of words", sum)
	}
	if diff := cmp.Diff(got, received(obj, asked, "rome").namespaces); diff != "" {
		t.Errorf("read again it is another answer: %s", diff)
	}
}

func FuzzReceived(f *testing.F) {
	f.Add(`{"metadata":{"generation":1},"status":{"observedGeneration":1,"namespaces":{"shop":{"phase":"Ready","name":"shop-rome"}}}}`)
	f.Add(`{"spec":{"namespaces":{"shop":{"strategy":7},"x":null}},"status":{"observedGeneration":-1,"namespaces":{"a":{"phase":"Kept","message":"\u0000"}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var obj map[string]any
		if json.Unmarshal([]byte(text), &obj) != nil {
			return
		}
		a := received(obj, wanted, "rome")
		if len(a.namespaces) > len(wanted)+maxAnswers || a.observed < 0 {
			t.Fatalf("%d answers of %d", len(a.namespaces), a.observed)
		}
		for name, m := range a.namespaces {
			if len(validation.IsDNS1123Label(name)) > 0 || m.Name != "" && len(validation.IsDNS1123Label(m.Name)) > 0 ||
				len([]rune(m.Message)) > maxMessage || m.Reason != "" && !reasonWord.MatchString(m.Reason) || m.Phase == v1alpha1.MappingRefused && m.Reason == "" {
				t.Fatalf("%q %+v", name, m)
			}
		}
		there := remoteMap("x")
		there.Object["spec"] = obj["spec"]
		remoteEntries(there)
		if _, err := json.Marshal(entryChanges(field(field(there.Object, "spec"), "namespaces"), wanted)); err != nil {
			t.Fatal(err)
		}
	})
}
