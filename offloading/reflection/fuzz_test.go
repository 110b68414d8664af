package reflection

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// FuzzJudge: whatever a ShadowObject says, what is made is a small Secret of a carried
// type in the mapped namespace, labelled for its tenant, and what is said repeats nothing
// of its content.
func FuzzJudge(f *testing.F) {
	const secret = "s3cret-of-4711"
	good := login("x")
	f.Add("Secret", "shop", "registry", "", jsonType, jsonKey, good, 0)
	f.Add("Secret", "shop", "registry", "another", jsonType, jsonKey, good, 1)
	f.Add("Secret", "shop", "registry", "", cfgType, cfgKey, []byte("{}"), 2)
	f.Add("Secret", "a/b", "..", "", "Opaque", "password", []byte("x"), 2)
	f.Add("ConfigMap", "shop", "x", "", cfgType, jsonKey, good, 3)
	f.Fuzz(func(t *testing.T, kind, namespace, name, object, carried, key string, value []byte, around int) {
		home := v1alpha1.HomeObject{Kind: kind, Namespace: namespace, Name: name}
		if around < 0 { // what must not be repeated, well formed or not
			value = append([]byte(`{"`+secret+`":1}`), value...)
		}
		s := &v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{Name: object}, Spec: v1alpha1.ShadowObjectSpec{Home: home, Object: text(carried, key, value)}}
		if object == "" {
			s.Name = v1alpha1.ShadowObjectName(home)
		}
		c := claim{shadow: s, tenant: "rome", place: place{name: "shop-rome"}}
		foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name}, Data: map[string][]byte{"a": []byte("theirs")}}
		switch around & 3 {
		case 1:
			c.have = foreign
		case 2:
			c.have = foreign
			c.have.Labels = map[string]string{v1alpha1.LabelManagedBy: manager, v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeNamespace: namespace}
		case 3:
			c.place = place{over: true}
		}
		d := judge(c)
		if len(d.message) > 1000 || strings.Contains(d.message, secret) {
			t.Fatalf("says %q", d.message)
		}
		if d.want == nil {
			if d.create || d.replace || d.patch || d.reason == v1alpha1.ReasonReady {
				t.Fatalf("writes nothing, and does %+v", d)
			}
			return
		}
		w := d.want
		if w.Namespace != "shop-rome" || w.Name != name || len(validation.IsDNS1123Subdomain(w.Name)) > 0 || w.Labels[v1alpha1.LabelTenant] != "rome" ||
			len(w.Annotations)+len(w.Finalizers)+len(w.OwnerReferences) > 0 || keys[w.Type] == "" || len(w.Data) != 1 || len(w.Data[keys[w.Type]]) > maxContent {
			t.Fatalf("makes %s/%s of type %s", w.Namespace, w.Name, w.Type)
		}
		if c.have != nil && !owned(c.have, "rome", namespace) {
			t.Fatal("a Secret of somebody else is written")
		}
	})
}

// FuzzAnswer: what a provider says against a Secret reaches nobody in its own words.
func FuzzAnswer(f *testing.F) {
	f.Add("Refused", "s3cret", "x", int64(0))
	f.Add("NameTaken", "\x1b[2J", strings.Repeat("n", 300), int64(0))
	f.Add("", "", "", int64(1))
	f.Fuzz(func(t *testing.T, reason, message, name string, observed int64) {
		home := v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: "registry"}
		s := &v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ShadowObjectName(home)}}
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: observed}}
		got := answer(s)
		s.Status.Conditions[0].Message = ""
		if got != answer(s) || len(got) > 300 || observed != 0 && got != "" {
			t.Fatalf("says %q", got)
		}
	})
}
