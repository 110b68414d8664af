package content

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// decoding is a case of what a peer may write: wrong is "" if it passes.
type decoding struct{ reason, text, wrong string }

// testDecode runs the cases of one kind, and holds that nothing secret is repeated and
// that what passes comes back.
func testDecode(t *testing.T, kind string, rules Rules, cases []decoding) {
	t.Helper()
	k := Kinds[kind]
	for _, c := range cases {
		got, wrong := k.Decode(c.text, rules)
		switch {
		case (c.wrong == "") != (wrong == "") || !strings.Contains(wrong, c.wrong):
			t.Errorf("%s: %q, want %q", c.reason, wrong, c.wrong)
		case (got == nil) != (wrong != ""):
			t.Errorf("%s: an object and a sentence, or neither", c.reason)
		case strings.Contains(wrong, "s3cret") || len(wrong) > 600:
			t.Errorf("%s: the sentence repeats content: %s", c.reason, wrong)
		case got != nil && (got.GetName() != "" || got.GetNamespace() != ""):
			t.Errorf("%s: it names itself", c.reason)
		case got != nil:
			comesBack(t, k, got, rules)
		}
	}
}

// comesBack holds that an object that was decoded encodes to the same.
func comesBack(t *testing.T, k Kind, o client.Object, rules Rules) {
	t.Helper()
	annotations := o.GetAnnotations()
	delete(annotations, v1alpha1.AnnotationReflected)
	o.SetAnnotations(annotations)
	text, wrong := k.Encode(o)
	if wrong != "" {
		t.Errorf("%s: what was decoded does not travel: %s", k.Name, wrong)
		return
	}
	again, wrong := k.Decode(text, rules)
	if wrong != "" {
		t.Errorf("%s: what was encoded is refused: %s", k.Name, wrong)
		return
	}
	delete(again.GetAnnotations(), v1alpha1.AnnotationReflected)
	if !same(o, again) {
		t.Errorf("%s: it does not come back", k.Name)
	}
}

// TestEnvelope: what holds for texts of every kind.
func TestEnvelope(t *testing.T) {
	many := `{"labels":{`
	for i := range maxLabels {
		many += fmt.Sprintf(`"l%d":"",`, i)
	}
	testDecode(t, "Service", Rules{}, []decoding{
		{"labels and annotations travel", `{"labels":{"app":"a","app.kubernetes.io/name":"b","example.org/c":"d"},"annotations":{"note":"x"},"content":{}}`, ""},
		{"nothing is something", `{}`, ""},
		{"a word", `null`, "not a JSON object"},
		{"no text", ``, "not a JSON object"},
		{"a list", `[]`, "not a JSON object"},
		{"what goes on", `{}{}`, "not the JSON"},
		{"a field of another's", `{"metadata":{"namespace":"kube-system"}}`, "not the JSON"},
		{"owners would be deleted for", `{"ownerReferences":[]}`, "not the JSON"},
		{"said twice", `{"content":{},"content":{}}`, "not the JSON"},
		{"other letters", `{"Content":{}}`, "not the JSON"},
		{"labels of ours", `{"labels":{"pelago.dev/tenant":"oslo"}}`, "labels: those of"},
		{"labels of ours below", `{"labels":{"x.pelago.dev/tenant":"oslo"}}`, "labels: those of"},
		{"labels of Kubernetes", `{"labels":{"kubernetes.io/x":"y"}}`, "labels: those of"},
		{"labels below Kubernetes", `{"labels":{"service.kubernetes.io/headless":"y"}}`, "labels: those of"},
		{"annotations that are orders", `{"annotations":{"nginx.ingress.kubernetes.io/x":"y"}}`, "annotations: those with a prefix"},
		{"a label more than can be", many + `"last":""}}`, "65 labels"},
		{"long annotations", `{"annotations":{"a":"` + strings.Repeat("x", maxAnnotations) + `"}}`, "bytes, at most"},
		{"too long", `{"annotations":{"a":"` + strings.Repeat("x", MaxText) + `"}}`, "bytes, at most"},
	})
	if _, wrong := Kinds["Service"].Decode(`{}`, Rules{Deny: []string{"Secret", "Service"}}); !strings.Contains(wrong, "no Service") {
		t.Errorf("denied: %q", wrong)
	}
}

// TestMetadata: what of a home object's metadata travels.
func TestMetadata(t *testing.T) {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{"app": "a", "app.kubernetes.io/name": "b", "helm.sh/chart": "c", "kubernetes.io/metadata.name": "x", "node.k8s.io/x": "x",
			"k8s.io/x": "x", "pelago.dev/tenant": "x", "notkubernetes.io/d": "d"},
		Annotations: map[string]string{"note": "n", "kubectl.kubernetes.io/last-applied-configuration": "x", "example.org/x": "x", "big": strings.Repeat("x", maxAnnotations), "short": "s"},
	}}
	if diff := cmp.Diff(map[string]string{"app": "a", "app.kubernetes.io/name": "b", "helm.sh/chart": "c", "notkubernetes.io/d": "d"}, labelsOf(o)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"note": "n", "short": "s"}, annotationsOf(o)); diff != "" {
		t.Error(diff)
	}
}

// TestCut: of labels and annotations for which there is no room the owner is told, of those that
// never travel not.
func TestCut(t *testing.T) {
	o := &corev1.Service{}
	o.Labels, o.Annotations = map[string]string{"pelago.dev/x": "", "a.k8s.io/x": ""}, map[string]string{"example.org/x": strings.Repeat("x", maxAnnotations)}
	for i := range maxLabels {
		o.Labels[fmt.Sprint("l", i)], o.Annotations[fmt.Sprint("a", i)] = "", ""
	}
	k := Kinds["Service"]
	if told := k.Cut(o); told != "" {
		t.Errorf("all travel that can, and the owner hears %q", told)
	}
	o.Annotations["zz"] = ""
	if told := k.Cut(o); !strings.Contains(told, "1 of its 65 annotations stay home") {
		t.Errorf("an annotation more: %q", told)
	}
	o.Labels["zz"] = ""
	if told := k.Cut(o); !strings.Contains(told, "1 of its 65 labels stay home, as at most 64 travel") {
		t.Errorf("a label more: %q", told)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: o.Labels}}
	if told := Kinds["Secret"].Cut(secret); told != "" {
		t.Errorf("no label of a Secret travels, and its owner hears %q", told)
	}
}

// TestMergeMetadata: home's labels and annotations come and go, others' stay.
func TestMergeMetadata(t *testing.T) {
	k := Kinds["Service"]
	first, _ := k.Decode(`{"labels":{"app":"a","tier":"x"},"annotations":{"note":"n"}}`, Rules{})
	have := first.DeepCopyObject().(client.Object)
	have.SetLabels(joined(have.GetLabels(), map[string]string{"owner.example/x": "theirs", "pelago.dev/tenant": "rome"}))
	have.SetAnnotations(joined(have.GetAnnotations(), map[string]string{"by-hand": "theirs"}))
	same, _ := k.Decode(`{"labels":{"app":"a","tier":"x"},"annotations":{"note":"n"}}`, Rules{})
	if _, changed, _ := k.Merge(have, same); changed {
		t.Error("nothing is new, and it changes")
	}
	want, _ := k.Decode(`{"labels":{"app":"b"}}`, Rules{})
	next, changed, replace := k.Merge(have, want)
	if !changed || replace {
		t.Errorf("changed %v, replace %v", changed, replace)
	}
	if diff := cmp.Diff(map[string]string{"app": "b", "owner.example/x": "theirs", "pelago.dev/tenant": "rome"}, next.GetLabels()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"by-hand": "theirs", v1alpha1.AnnotationReflected: "label:app"}, next.GetAnnotations()); diff != "" {
		t.Error(diff)
	}
	next.SetAnnotations(map[string]string{v1alpha1.AnnotationReflected: "label:pelago.dev/tenant x annotation: label"})
	if last, _, _ := k.Merge(next, want); last.GetLabels()["pelago.dev/tenant"] != "rome" {
		t.Error("a note that was changed by hand takes our label away")
	}
}

// TestPlain: Secrets and ConfigMaps have no labels and annotations of home, so that nothing
// which looks for them in all namespaces takes them, such as a dashboard's side car; those that
// were made with some lose them, and what others and we have added stays.
func TestPlain(t *testing.T) {
	text := `{"labels":{"grafana_dashboard":"1"},"annotations":{"note":"x"},"content":{"type":"Opaque"}}`
	for _, kind := range []string{"Secret", "ConfigMap"} {
		k, text := Kinds[kind], text
		home := k.New()
		if s, ok := home.(*corev1.Secret); ok {
			s.Type = corev1.SecretTypeOpaque
		} else {
			text = strings.Replace(text, `"type":"Opaque"`, "", 1)
		}
		home.SetLabels(map[string]string{"grafana_dashboard": "1", "app": "web"})
		home.SetAnnotations(map[string]string{"note": "x"})
		if sent, wrong := k.Encode(home); wrong != "" || strings.Contains(sent, "labels") || strings.Contains(sent, "annotations") {
			t.Errorf("%s: %s is sent, %s", kind, sent, wrong)
		}
		o, wrong := k.Decode(text, Rules{})
		if wrong != "" || len(o.GetLabels())+len(o.GetAnnotations()) > 0 {
			t.Fatalf("%s of an older build: %s %v %v", kind, wrong, o.GetLabels(), o.GetAnnotations())
		}
		have := o.DeepCopyObject().(client.Object)
		have.SetLabels(map[string]string{"grafana_dashboard": "1", "owner.example/x": "theirs", v1alpha1.LabelTenant: "rome"})
		have.SetAnnotations(map[string]string{"note": "x", "by-hand": "theirs", v1alpha1.AnnotationReflected: "annotation:note label:grafana_dashboard"})
		next, changed, replace := k.Merge(have, o)
		if diff := cmp.Diff(map[string]string{"owner.example/x": "theirs", v1alpha1.LabelTenant: "rome"}, next.GetLabels()); diff != "" || !changed || replace {
			t.Errorf("%s: changed %v, replace %v: %s", kind, changed, replace, diff)
		}
		if diff := cmp.Diff(map[string]string{"by-hand": "theirs"}, next.GetAnnotations()); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
	}
}

// TestKinds: every kind is whole, and refuses another's objects.
func TestKinds(t *testing.T) {
	for _, name := range Names() {
		k := Kinds[name]
		if k.Name != name || k.New() == nil || k.NewList() == nil || k.New() == k.New() {
			t.Errorf("%s is not whole", name)
		}
		if _, wrong := k.Encode(&metav1.PartialObjectMetadata{}); wrong == "" {
			t.Errorf("%s encodes another's", name)
		}
	}
}

// FuzzDecode: whatever a peer writes for whatever kind, what comes out is bounded and
// encodes to what means the same, and what is refused is said shortly.
func FuzzDecode(f *testing.F) {
	for _, seed := range seeds {
		for i := range Names() {
			f.Add(byte(i), seed)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text string) {
		k := Kinds[Names()[int(which)%len(Kinds)]]
		o, wrong := k.Decode(text, generous)
		if wrong != "" {
			if len(wrong) > 1000 || o != nil {
				t.Errorf("%s: a sentence of %d bytes", k.Name, len(wrong))
			}
			return
		}
		if o.GetNamespace() != "" || o.GetName() != "" || len(o.GetOwnerReferences())+len(o.GetFinalizers()) > 0 {
			t.Errorf("%s: it says who it is", k.Name)
		}
		if s, ok := o.(*corev1.Service); ok && slices.ContainsFunc(s.Spec.IPFamilies, func(f corev1.IPFamily) bool { return !slices.Contains(generous.Families, f) }) {
			t.Errorf("families %v, of which the cluster has %v", s.Spec.IPFamilies, generous.Families)
		}
		if _, changed, replace := k.Merge(o, o); changed || replace {
			t.Errorf("%s: merged with itself it changes", k.Name)
		}
		delete(o.GetAnnotations(), v1alpha1.AnnotationReflected)
		if text, wrong := k.Encode(o); wrong == "" {
			if _, wrong := k.Decode(text, generous); wrong != "" {
				t.Errorf("%s: what was encoded is refused: %s", k.Name, wrong)
			}
			comesBack(t, k, o, generous)
		} else if !strings.Contains(wrong, "bytes as JSON") { // escaped, a text can be longer than it was
			t.Errorf("%s: what was decoded does not travel: %s", k.Name, wrong)
		}
	})
}

// generous rules allow all there is.
var generous = Rules{NodePorts: true, LoadBalancers: true, Budgets: true, IngressHosts: []string{"example"}, IngressClass: "x", Families: []corev1.IPFamily{corev1.IPv4Protocol}, Spaces: map[string]string{"shop": "shop"}, Allows: func(netip.Addr) bool { return true }}

// seeds are texts for the fuzzer.
var seeds = []string{
	`{}`, `null`, `{"labels":{"a":"b"},"annotations":{"c":"d"},"content":{}}`,
	`{"content":{"type":"Opaque","data":{"a":"eA=="}}}`,
	`{"content":{"data":{"a":"x"},"binaryData":{"b":"eA=="},"immutable":true}}`,
	serviceText(webPort + `,"type":"NodePort","headless":false,"sticky":5,"selector":{"a":"b"}`), shopRule("a.example"),
	`{"content":{"tls":[{"hosts":["a.example"],"secret":"x"}],"rules":[{"host":"a.example",` + shopPaths + `}]}}`,
	serviceText(webPort + `,"ipFamilies":["IPv6","IPv4"],"ipFamilyPolicy":"RequireDualStack"`),
	`{"content":{"minAvailable":1,"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}}}`,
	`{"content":{"podSelector":{"matchLabels":{"app":"web"}},"types":["Ingress","Egress"],"ingress":[{"peers":[{"namespaces":["shop","db"],"podSelector":{}},{"block":"0.0.0.0/0","except":["10.1.0.0/16"]}],"ports":[{"protocol":"TCP","port":80,"endPort":90},{"protocol":"UDP","name":"dns"}]}],"egress":[{"everybody":true}]}}`,
	`{"content":{"service":"web","type":"IPv4","ports":[{"name":"web","port":80}],"endpoints":[{"address":"10.1.0.7","ready":true}]}}`,
}
