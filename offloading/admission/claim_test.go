package admission

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestClaims: a pod that claims a volume, which no provider runs, stays here if it may, and else is
// refused: the scheduler would have the volume provisioned for the virtual node, and never bind the pod.
func TestClaims(t *testing.T) {
	pod := func(class, volume string) string {
		return fmt.Sprintf(`{"spec":{"runtimeClassName":%q,"volumes":[{"name":"d","emptyDir":{}},{"name":"v",%s}]}}`, class, volume)
	}
	const claim, ephemeral = `"persistentVolumeClaim":{"claimName":"x"}`, `"ephemeral":{"volumeClaimTemplate":{}}`
	for _, c := range []struct {
		reason, namespace, pod string
		terms, elsewhere       bool
		refused                string
	}{
		{"a claim", "labelled", pod("", claim), false, true, ""},
		{"one of the pod's own", "labelled", pod("", ephemeral), false, true, ""},
		{"none", "labelled", pod("", `"emptyDir":{}`), true, true, ""},
		{"a claim, and it may run elsewhere only", "remote", pod("", claim), false, false, "spec.volumes[1].persistentVolumeClaim: volume claims do not travel yet"},
		{"one of its own, and elsewhere only", "remote", pod("", ephemeral), false, false, "spec.volumes[1].ephemeral: volume claims do not travel yet"},
		{"by its RuntimeClass", "labelled", pod(v1alpha1.RuntimeClass, claim), false, false, "neither runtimeClassName pelago"},
		{"by a selector of virtual nodes", "labelled", `{"spec":{"nodeSelector":{"pelago.dev/type":"virtual-node"},"volumes":[{"name":"v",` + claim + `}]}}`, false, false, "nor a nodeSelector for virtual nodes"},
		{"by the name of one", "labelled", `{"spec":{"nodeSelector":{"kubernetes.io/hostname":"milan"},"volumes":[{"name":"v",` + claim + `}]}}`, false, false, "nor a nodeSelector for virtual nodes"},
		{"by the name of a node here", "labelled", `{"spec":{"nodeSelector":{"kubernetes.io/hostname":"rome-1"},"volumes":[{"name":"v",` + claim + `}]}}`, false, true, ""},
		{"a claim, and it tolerates all", "labelled", `{"spec":{"tolerations":[{"operator":"Exists"}],"volumes":[{"name":"v",` + claim + `}]}}`, false, true, ""},
		{"of a DaemonSet", "remote", `{"metadata":{"ownerReferences":[{"kind":"DaemonSet","name":"d","uid":"u","controller":true}]},"spec":{"volumes":[{"name":"v",` + claim + `}]}}`, false, false, ""},
		{"none, and elsewhere only", "remote", pod("", `"emptyDir":{}`), true, true, ""},
	} {
		s := newShelf()
		s.nodes = append(s.nodes, *realNode("rome-1"))
		for i := range s.nodes {
			s.nodes[i].Labels[corev1.LabelHostname] = s.nodes[i].Name
		}
		h, _ := handlerOf(t, s)
		got := answerOf(t, post(h, reviewOf(c.namespace, c.pod)))
		if c.refused != "" {
			if got.Allowed || got.Result.Code != 422 || !strings.Contains(got.Result.Message, c.refused) {
				t.Errorf("%s: %+v", c.reason, got)
			}
		} else if terms := strings.Contains(string(got.Patch), v1alpha1.TaintVirtualNode); !got.Allowed || terms != c.terms {
			t.Errorf("%s: %s", c.reason, got.Patch)
		}
		made, _, err := look([]byte(c.pod))
		if err != nil {
			t.Fatal(err)
		}
		made.Namespace = c.namespace
		choice, err := NewChoices(s, s, clock.RealClock{}).Of(t.Context(), made)
		if err != nil || choice.Elsewhere("milan") != c.elsewhere {
			t.Errorf("%s: %+v, %v", c.reason, choice, err)
		}
	}
}
