package deploy

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// selects says whether the matchLabels at a path of an object select labels.
func selects(o map[string]any, given map[string]string, path ...string) bool {
	wanted, _, _ := unstructured.NestedStringMap(o, append(path, "matchLabels")...)
	return len(wanted) > 0 && labels.SelectorFromSet(wanted).Matches(labels.Set(given))
}

// A drain takes the replicas of a program one by one, which are not all on one node, and of
// a single replica it is not held up, nor of one that is not ready.
func TestDrains(t *testing.T) {
	want := map[string]any{"maxUnavailable": int64(1), "unhealthyPodEvictionPolicy": "AlwaysAllow"}
	for name, values := range map[string]map[string]any{"default": minimal(), "everything": everything(), "without": withoutNetwork(everything())} {
		objects := render(t, values, Release{})
		for _, o := range objects {
			if o.GetKind() != "Deployment" {
				continue
			}
			pods, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
			budgets := 0
			for _, b := range objects {
				if b.GetKind() != "PodDisruptionBudget" || b.GetNamespace() != o.GetNamespace() || !selects(b.Object, pods, "spec", "selector") {
					continue
				}
				budgets++
				spec, _, _ := unstructured.NestedMap(b.Object, "spec")
				if delete(spec, "selector"); cmp.Diff(want, spec) != "" {
					t.Errorf("%s: the budget of %s says %v", name, o.GetName(), spec)
				}
			}
			if budgets != 1 { // of several, none lets a pod go
				t.Errorf("%s: %s has %d budgets", name, o.GetName(), budgets)
			}
			spread, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "topologySpreadConstraints")
			if len(spread) != 1 || !selects(spread[0].(map[string]any), pods, "labelSelector") || spread[0].(map[string]any)["whenUnsatisfiable"] != "ScheduleAnyway" {
				t.Errorf("%s: %s is spread by %v", name, o.GetName(), spread)
			}
		}
	}
}

// What virtual nodes, admission and the network hang on is not evicted for other pods, unless
// the owner wants that.
func TestPriorities(t *testing.T) {
	read := func(values map[string]any) map[string]string {
		found := map[string]string{}
		for _, o := range render(t, values, Release{}) {
			if o.GetKind() == "PriorityClass" {
				value, _, _ := unstructured.NestedInt64(o.Object, "value")
				found["class "+o.GetName()] = fmt.Sprint(value)
			}
			if class, there, _ := unstructured.NestedString(o.Object, "spec", "template", "spec", "priorityClassName"); there {
				found[o.GetName()] = class
			}
		}
		return found
	}
	want := map[string]string{"class pelago-manager": "1000000000", "pelago-manager": "pelago-manager", "pelago-agent": "system-node-critical"}
	if diff := cmp.Diff(want, read(minimal())); diff != "" {
		t.Errorf("classes (-want +got)\n%s", diff)
	}
	want = map[string]string{"pelago-manager": "theirs", "pelago-agent": "system-node-critical"}
	theirs := map[string]any{"manager": map[string]any{"priorityClassName": "theirs"}}
	if diff := cmp.Diff(want, read(merge(minimal(), theirs))); diff != "" {
		t.Errorf("with a class of the owner's (-want +got)\n%s", diff)
	}
	none := map[string]any{"priorityClassName": ""}
	if got := read(merge(minimal(), map[string]any{"manager": none, "agent": none})); len(got) > 0 {
		t.Errorf("without classes there are %v", got)
	}
}
