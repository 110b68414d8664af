package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// restartedAt is what kubectl rollout restart writes into pod templates.
const restartedAt = "kubectl.kubernetes.io/restartedAt"

// workload is what has pods that were made under other terms.
type workload struct {
	kind, name string
	pods       int
	// held says why it cannot be rolled, empty if it can.
	held string
}

func (w workload) String() string { return strings.ToLower(w.kind) + "/" + w.name }

// older says which pods were made under other terms, and rolls what makes them if that
// was asked for.
func (o *offload) older(ctx context.Context, e *Env, c *Cluster, current *v1alpha1.NamespaceOffloading) error {
	all, err := c.outdated(ctx, current)
	if err != nil || len(all) == 0 {
		return err
	}
	count, rolls := 0, 0
	for _, w := range all {
		count += w.pods
		if w.held == "" {
			rolls++
		}
	}
	if !o.restart {
		e.note("%s %s older than these terms and %s where %s. To roll what makes them: pelago offload namespace %s --restart-workloads",
			pods(count), choose(count, "is", "are"), choose(count, "stays", "stay"), choose(count, "it is", "they are"), current.Namespace)
		return nil
	}
	for _, w := range all {
		if w.held != "" {
			e.note("%s is left as it is (%s): %s.", w, pods(w.pods), w.held)
			continue
		}
		if err := c.roll(ctx, current.Namespace, w, e.Clock.Now()); err != nil {
			return describe(fmt.Errorf("rolling %s: %w", w, err), c)
		}
		fmt.Fprintf(e.Out, "Rolled %s (%s).\n", w, pods(w.pods))
	}
	if rolls > 0 {
		e.note("The pods are replaced one after the other; to follow: kubectl -n %s get pods -o wide --watch", current.Namespace)
	}
	return nil
}

func pods(n int) string { return fmt.Sprintf("%d %s", n, choose(n, "pod", "pods")) }

func choose(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// outdated finds what has pods in an offloaded namespace that were made under other terms.
func (c *Cluster) outdated(ctx context.Context, o *v1alpha1.NamespaceOffloading) ([]workload, error) {
	in := client.InNamespace(o.Namespace)
	var found []corev1.Pod
	err := c.eachPod(ctx, func(p *corev1.Pod) {
		if chain.Outdated(p, o) != "" { // of which no more is needed than what made it
			found = append(found, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, OwnerReferences: p.OwnerReferences}})
		}
	}, in)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var (
		sets        appsv1.ReplicaSetList
		deployments appsv1.DeploymentList
		statefuls   appsv1.StatefulSetList
	)
	for _, read := range []struct {
		what string
		list client.ObjectList
	}{{"ReplicaSets", &sets}, {"Deployments", &deployments}, {"StatefulSets", &statefuls}} {
		if err := c.Client.List(ctx, read.list, in); err != nil {
			return nil, describe(fmt.Errorf("listing %s: %w", read.what, err), c)
		}
	}
	return grouped(found, sets.Items, deployments.Items, statefuls.Items), nil
}

// grouped puts pods together by what makes them.
func grouped(found []corev1.Pod, sets []appsv1.ReplicaSet, deployments []appsv1.Deployment, statefuls []appsv1.StatefulSet) []workload {
	count := map[workload]int{}
	for i := range found {
		w := workload{kind: "Pod", name: found[i].Name, held: "nothing makes it again; delete it and make it anew"}
		if owner := metav1.GetControllerOf(&found[i]); owner != nil {
			w = owned(owner, sets, deployments, statefuls)
		}
		count[w]++
	}
	var all []workload
	for w, n := range count {
		w.pods = n
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b workload) int {
		return cmp.Or(cmp.Compare(b2i(a.held != ""), b2i(b.held != "")), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return all
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// owned is the workload behind the controller of a pod.
func owned(owner *metav1.OwnerReference, sets []appsv1.ReplicaSet, deployments []appsv1.Deployment, statefuls []appsv1.StatefulSet) workload {
	w := workload{kind: owner.Kind, name: owner.Name}
	switch owner.Kind {
	case "ReplicaSet":
		for i := range sets {
			if above := metav1.GetControllerOf(&sets[i]); sets[i].UID == owner.UID && above != nil && above.Kind == "Deployment" {
				return deploymentOf(above, deployments)
			}
		}
		w.held = "no Deployment rolls it; delete its pods, it makes new ones"
	case "StatefulSet":
		for i := range statefuls {
			if statefuls[i].UID == owner.UID && statefuls[i].Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType {
				w.held = "its updateStrategy is OnDelete; delete its pods, it makes new ones"
			}
		}
	case "Job":
		w.held = "its pods run to their end"
	default:
		w.held = "only its own controller can replace its pods; delete them, or roll it"
	}
	return w
}

func deploymentOf(owner *metav1.OwnerReference, deployments []appsv1.Deployment) workload {
	w := workload{kind: "Deployment", name: owner.Name}
	for i := range deployments {
		if deployments[i].UID == owner.UID && deployments[i].Spec.Paused {
			w.held = "it is paused; to go on: kubectl rollout resume deployment " + owner.Name
		}
	}
	return w
}

// roll makes a workload replace its pods, as kubectl rollout restart does.
func (c *Cluster) roll(ctx context.Context, namespace string, w workload, now time.Time) error {
	var object client.Object = &appsv1.Deployment{}
	if w.kind == "StatefulSet" {
		object = &appsv1.StatefulSet{}
	}
	object.SetNamespace(namespace)
	object.SetName(w.name)
	patch := client.RawPatch(types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restartedAt, now.Format(time.RFC3339)))
	return client.IgnoreNotFound(c.Client.Patch(ctx, object, patch, fieldOwner))
}
