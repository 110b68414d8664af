package offer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const goodOffer = `{"resources":{"cpu":"4","memory":"8Gi","pods":20,"example.com/gpu":"1"},"used":{"cpu":"1500m","pods":2},
"shapes":[{"architecture":"amd64","operatingSystem":"linux","nodes":3,"largest":[{"cpu":"2","memory":"4Gi","pods":"9"}],"future":{"a":1}}],
"storageClasses":[{"name":"ssd","default":true}],"loadBalancerClasses":[{"name":"example.com/lb"}],
"labels":{"topology.kubernetes.io/region":"eu-south","topology.kubernetes.io/zone":"a","kubernetes.io/arch":"evil","node.k8s.io/x":"evil","pelago.dev/type":"evil","color":"blue","bad key":"x"},
"price":{"amount":"0.05","currency":"EUR","period":"Hour"},"schedulingTimeout":"10s","expires":"2030-01-02T03:04:05Z","unknown":{"kept":[1,2]}}`

func parsed(t testing.TB, text string) map[string]any {
	t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		t.Fatal(err)
	}
	return map[string]any{"spec": whole64(spec)}
}

// whole64 turns whole numbers into int64, as the API machinery reads them.
func whole64(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = whole64(v[k])
		}
	case []any:
		for i := range v {
			v[i] = whole64(v[i])
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

func TestSanitizeKeeps(t *testing.T) {
	peers := parsed(t, goodOffer)
	before := runtime.DeepCopyJSON(peers)
	got, err := sanitize(peers)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, peers) {
		t.Error("the peer's object was changed")
	}
	if got.spec["unknown"] == nil || got.spec["shapes"].([]any)[0].(map[string]any)["future"] == nil {
		t.Error("unknown fields are gone")
	}
	labels := fmt.Sprint(got.spec["labels"])
	if want := "map[color:blue topology.kubernetes.io/region:eu-south topology.kubernetes.io/zone:a]"; labels != want {
		t.Errorf("labels %s, want %s", labels, want)
	}
	if got.used[cpu] != 1500 || got.used[pods] != 2 || got.resources[cpu] != 4000 || got.resources[pods] != 20 || got.expires.Year() != 2030 {
		t.Errorf("read %v until %s", got.resources, got.expires)
	}
}

func TestSanitizeRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 20) + "1" + strings.Repeat("}", 20)
	for _, c := range []struct{ reason, from, to, field string }{
		{"below zero", `"cpu":"4"`, `"cpu":"-4"`, "spec.resources[cpu]"},
		{"more than any cluster has", `"cpu":"4"`, `"cpu":"4E"`, "spec.resources[cpu]"},
		{"a quantity that takes for ever to parse", `"cpu":"4"`, `"cpu":"1e999999999"`, "spec.resources"},
		{"the same with a sign", `"memory":"4Gi"`, `"memory":"1e-999999999"`, "spec.shapes[0].largest[0]"},
		{"a broken number of pods", `"pods":20`, `"pods":"1.5"`, "spec.resources[pods]"},
		{"a large number that is not whole", `"example.com/gpu":"1"`, `"example.com/gpu":"1125899906842625.5"`, "spec.resources[example.com/gpu]: not a whole number"},
		{"hardly not whole", `"example.com/gpu":"1"`, `"example.com/gpu":"1.000000001"`, "spec.resources[example.com/gpu]: not a whole number"},
		{"whole, and too large for an API server to see that", `"example.com/gpu":"1"`, `"example.com/gpu":"9223372036854776"`, "spec.resources[example.com/gpu]"},
		{"too large with what is in use", `"pods":2}`, `"pods":2,"example.com/gpu":"4503599627370496"}`, "spec.used[example.com/gpu]"},
		{"no quantity", `"cpu":"4"`, `"cpu":{}`, "spec.resources"},
		{"no resource", `"cpu":"4"`, `"c p u":"4"`, "spec.resources"},
		{"used below zero", `"1500m"`, `"-1"`, "spec.used[cpu]"},
		{"used that takes for ever to parse", `"1500m"`, `"1e999999999"`, "spec.used"},
		{"no list of what is used", `"used":{"cpu":"1500m","pods":2}`, `"used":3`, "spec.used"},
		{"no resources", `"resources"`, `"others"`, "spec.resources"},
		{"no expiry", `"expires"`, `"others"`, "spec.expires"},
		{"no time", `2030-01-02T03:04:05Z`, `tomorrow`, "spec.expires"},
		{"nodes below zero", `"nodes":3`, `"nodes":-3`, "spec.shapes[0].nodes"},
		{"an architecture that is no label value", `amd64`, `a/b`, "spec.shapes[0].architecture"},
		{"no shapes", `"shapes":[`, `"shapes":3,"x":[`, "spec.shapes"},
		{"a class twice", `{"name":"ssd","default":true}`, `{"name":"ssd"},{"name":"ssd"}`, "spec.storageClasses[1].name"},
		{"a class without a name", `{"name":"ssd","default":true}`, `{}`, "spec.storageClasses[0].name"},
		{"a default that is none", `"default":true`, `"default":"yes"`, "spec.storageClasses[0].default"},
		{"no price", `"0.05"`, `"free"`, "spec.price"},
		{"a timeout that never ends", `"10s"`, `"9999h"`, "spec.schedulingTimeout"},
		{"labels that are none", `"labels":{`, `"labels":[],"x":{`, "spec.labels"},
		{"nested too deep", `{"kept":[1,2]}`, deep, "spec"},
		{"too large", `{"kept":[1,2]}`, `"` + strings.Repeat("x", maxOfferBytes) + `"`, "spec"},
	} {
		text := strings.Replace(goodOffer, c.from, c.to, 1)
		if text == goodOffer {
			t.Fatalf("%s: nothing replaced", c.reason)
		}
		if _, err := sanitize(parsed(t, text)); err == nil || !strings.HasPrefix(err.Error(), c.field) {
			t.Errorf("%s: %v, want an error about %s", c.reason, err, c.field)
		}
	}
	if _, err := sanitize(map[string]any{}); err == nil {
		t.Error("an offer without spec was taken")
	}
}

// Whatever a peer sends, nothing panics, and what is taken is within bounds.
func FuzzSanitize(f *testing.F) {
	f.Add([]byte(goodOffer))
	f.Add([]byte(`{"resources":{"cpu":"1e999999999"},"expires":"2030-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"resources":null,"shapes":[null],"labels":{"a":{}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var spec map[string]any
		if json.Unmarshal(text, &spec) != nil {
			return
		}
		got, err := sanitize(map[string]any{"spec": whole64(spec)})
		if err != nil {
			return
		}
		if len(got.resources) > maxResources {
			t.Errorf("%d resources", len(got.resources))
		}
		for name, v := range got.resources.plus(got.used) {
			if v < 0 || v > maxAmount {
				t.Errorf("%s: %d", name, v)
			}
		}
		labels, _ := got.spec["labels"].(map[string]any)
		for key := range labels {
			if strings.Contains(key, "kubernetes.io/") && !strings.HasPrefix(key, "topology.") && mayLabel(key) == false {
				t.Errorf("label %s was kept", key)
			}
		}
		again, err := sanitize(map[string]any{"spec": got.spec})
		if err != nil || !reflect.DeepEqual(again.spec, got.spec) {
			t.Errorf("what was taken is not taken again: %v", err)
		}
	})
}

// A request of a stranger is refused with the field, or has amounts within bounds.
func FuzzRequest(f *testing.F) {
	f.Add("cpu", "4", "Automatic", "")
	f.Add("example.com/gpu", "-1", "", "Accepted")
	f.Add("hugepages-2Mi", "9E", "Manual", "Declined")
	f.Add("", "1e99", "x", "y")
	f.Fuzz(func(t *testing.T, name, value, acceptance, decision string) {
		q, err := takeQuantity(value)
		if err != nil {
			return
		}
		spec := v1alpha1.ResourceRequestSpec{
			Resources: v1alpha1.ResourceList{name: q}, Acceptance: v1alpha1.Acceptance(acceptance), Decision: v1alpha1.Decision(decision),
		}
		if err := checkRequest(spec); err != nil {
			if !strings.HasPrefix(err.Error(), "spec.") {
				t.Errorf("%v does not name a field", err)
			}
			return
		}
		if v := amountsOf(spec.Resources)[name]; v < 0 || v > maxAmount {
			t.Errorf("%s=%s is %d", name, value, v)
		}
		for _, share := range split(amounts{cpu: 10, memory: 10, pods: 10}, nil, nil, []ask{{name: "a", named: amountsOf(spec.Resources)}}) {
			for _, v := range share {
				if v < 0 || v > 10 {
					t.Errorf("a share of %d", v)
				}
			}
		}
	})
}

func TestCheckRequest(t *testing.T) {
	for _, c := range []struct {
		reason, want string
		spec         v1alpha1.ResourceRequestSpec
	}{
		{"everything", "", v1alpha1.ResourceRequestSpec{}},
		{"amounts", "", v1alpha1.ResourceRequestSpec{Resources: list(cpu, "1500m", memory, "8Gi", "hugepages-2Mi", "1Gi", "example.com/gpu", "1", storage, "1Ti")}},
		{"a resource nobody has", `spec.resources: there is no resource "cpus"`, v1alpha1.ResourceRequestSpec{Resources: list("cpus", "1")}},
		{"not a name", "spec.resources: ", v1alpha1.ResourceRequestSpec{Resources: list("a b/c", "1")}},
		{"below zero", "spec.resources[cpu]: an amount below zero", v1alpha1.ResourceRequestSpec{Resources: list(cpu, "-1m")}},
		{"absurd", "spec.resources[memory]: more than any cluster has", v1alpha1.ResourceRequestSpec{Resources: list(memory, "8Ei")}},
		{"half a GPU", "spec.resources[example.com/gpu]: not a whole number", v1alpha1.ResourceRequestSpec{Resources: list("example.com/gpu", "500m")}},
		{"acceptance", "spec.acceptance: ", v1alpha1.ResourceRequestSpec{Acceptance: "Perhaps"}},
		{"decision", "spec.decision: ", v1alpha1.ResourceRequestSpec{Decision: "Perhaps"}},
	} {
		got := ""
		if err := checkRequest(c.spec); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}
