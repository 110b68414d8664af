package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/bench/audit"
)

// kind says what the pods of a burst have beside themselves.
type kind string

const (
	// plainKind is a pod alone, without even a token.
	plainKind kind = "plain"
	// sharedKind are pods of one Secret, one ConfigMap and one Service, with a token each.
	sharedKind kind = "shared"
	// ownKind are such pods with a Secret and a ConfigMap of their own each.
	ownKind kind = "own"
)

const (
	// envKinds names kinds of pods to measure, as a list, instead of plain ones alone.
	envKinds = "PELAGO_BENCH_KINDS"
	// sharedName is what objects are called that all pods of a burst have.
	sharedName = "all"
	// objectData is how much each Secret and ConfigMap holds, in bytes.
	objectData = 1 << 10
)

// mostPods is how many there can be at once: a tenant has 2,000 ShadowObjects at most,
// and each token, Secret and ConfigMap is one.
func (k kind) mostPods() int {
	switch k {
	case sharedKind:
		return v1alpha1.MaxShadowObjects - 100
	case ownKind:
		return (v1alpha1.MaxShadowObjects - 100) / 3
	}
	return 5000
}

// furnished says that these pods have objects.
func (k kind) furnished() bool { return k == sharedKind || k == ownKind }

// parseKinds reads a list of kinds.
func parseKinds(list string) ([]kind, error) {
	var kinds []kind
	for word := range strings.SplitSeq(list, ",") {
		k := kind(word)
		if k != plainKind && !k.furnished() {
			return nil, fmt.Errorf("%s names %q; write kinds of pods like plain,shared,own", envKinds, word)
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// refer has a pod use the objects of its kind: the Secret as a volume, the ConfigMap in
// its environment. The token is mounted by admission, the Service selects all pods.
func (k kind) refer(pod *corev1.Pod, name string) {
	if !k.furnished() {
		return
	}
	if k == sharedKind {
		name = sharedName
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
		Name: "login", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}},
	})
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "login", MountPath: "/login"})
	main.EnvFrom = append(main.EnvFrom, corev1.EnvFromSource{
		ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
	})
}

// objects are those that a burst of n pods refers to, and the Service that selects it.
func (b burst) objects(n int) []client.Object {
	if !b.kind.furnished() {
		return nil
	}
	names := []string{sharedName}
	if b.kind == ownKind {
		names = nil
		for i := range n {
			names = append(names, b.name(i))
		}
	}
	text := strings.Repeat("x", objectData)
	var all []client.Object
	for _, name := range names {
		meta := metav1.ObjectMeta{Name: name, Namespace: b.namespace}
		all = append(all,
			&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"password": []byte(text)}},
			&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"SETTINGS": text}})
	}
	return append(all, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: sharedName, Namespace: b.namespace},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": burstLabel}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
}

// furnish makes the objects before the pods, as users do, and clear removes them.
func (b burst) furnish(t *testing.T, n int) {
	t.Helper()
	objects := b.objects(n)
	many(t, len(objects), func(ctx context.Context, i int) error { return b.c.Clients[b.cluster].Create(ctx, objects[i]) })
}

func (b burst) clear(t *testing.T, n int) {
	t.Helper()
	objects := b.objects(n)
	many(t, len(objects), func(ctx context.Context, i int) error { return b.c.Clients[b.cluster].Delete(ctx, objects[i]) })
}

// bare waits until nothing of the objects is at the provider any more, which is a
// minute after the last pod: their ends belong to their cost.
func (b burst) bare(t *testing.T) {
	t.Helper()
	if !b.kind.furnished() {
		return
	}
	poll(t, time.Second, itemLimit, "objects have left the provider", func() error {
		return none(t, b.c, "milan", &v1alpha1.ShadowObjectList{}, client.InNamespace(v1alpha1.TenantNamespace("rome")))
	})
}

// objectResources are what requests about what pods refer to are about, as opposed to
// those about pods.
var objectResources = []string{"shadowobjects", "secrets", "configmaps", "services", "endpointslices"}

// atObjects tells requests that carry, make or keep up what pods refer to.
func atObjects(verb, resource string) bool {
	of, _, _ := strings.Cut(resource, "/")
	return slices.Contains(objectResources, of) || tokens(verb, resource)
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		kind    kind
		refers  []string // by pods 0 and 1
		objects []string
	}{
		{plainKind, []string{"", ""}, nil},
		{sharedKind, []string{"all", "all"}, []string{"Secret all", "ConfigMap all", "Service all"}},
		{ownKind, []string{"p-00000", "p-00001"}, []string{"Secret p-00000", "ConfigMap p-00000", "Secret p-00001", "ConfigMap p-00001", "Service all"}},
	} {
		b := burst{namespace: "n", kind: c.kind}
		var objects []string
		for _, o := range b.objects(len(c.refers)) {
			objects = append(objects, strings.TrimPrefix(fmt.Sprintf("%T ", o), "*v1.")+o.GetName())
			if service, ok := o.(*corev1.Service); ok && service.Spec.Selector["app"] != b.pod(0).Labels["app"] {
				t.Errorf("%s: the Service selects %v, and pods have %v", c.kind, service.Spec.Selector, b.pod(0).Labels)
			}
		}
		if diff := cmp.Diff(c.objects, objects); diff != "" {
			t.Errorf("%s: objects (-want +got)\n%s", c.kind, diff)
		}
		for i, want := range c.refers {
			var got []string
			pod := b.pod(i)
			for _, v := range pod.Spec.Volumes {
				got = append(got, v.Secret.SecretName)
			}
			for _, e := range pod.Spec.Containers[0].EnvFrom {
				got = append(got, e.ConfigMapRef.Name)
			}
			if wanted := strings.Fields(want + " " + want); !slices.Equal(got, wanted) {
				t.Errorf("%s: pod %d refers to %q, want %q", c.kind, i, got, wanted)
			}
		}
	}
}

// TestSplit counts requests as an audit log has them.
func TestSplit(t *testing.T) {
	k := newCost()
	for range 2 { // the lives of two pods
		for _, r := range []struct{ cluster, user, verb, resource string }{
			{"rome", ownAccounts + "m", "patch", "pods/status"},
			{"rome", ownAccounts + "m", "create", "serviceaccounts/token"},
			{"rome", ownAccounts + "m", "get", "secrets"},
			{"rome", ownAccounts + "m", "create", "events"},
			{"rome", "system:kube-scheduler", "create", "pods/binding"},
			{"milan", ownAccounts + "m", "create", "pods"},
			{"milan", ownAccounts + "m", "create", "configmaps"},
			{"milan", ownAccounts + "m", "patch", "shadowobjects/status"},
			{"milan", v1alpha1.UserPrefix + "u", "create", "shadowpods"},
			{"milan", v1alpha1.UserPrefix + "u", "create", "shadowobjects"},
		} {
			k.add(r.cluster, audit.Request{User: r.user, Verb: r.verb, Resource: r.resource, Code: 200})
		}
	}
	for _, c := range []struct {
		kind              kind
		ofPods, ofObjects share
	}{
		{plainKind, share{2, 3, 2}, share{}},
		{ownKind, share{1, 1, 1}, share{2, 2, 1}},
	} {
		ofPods, ofObjects := offloadResult{kind: c.kind, pods: 1, rounds: 2, cost: k}.split()
		if ofPods != c.ofPods || ofObjects != c.ofObjects {
			t.Errorf("%s: for pods %s, for objects %s; want %s and %s", c.kind, ofPods, ofObjects, c.ofPods, c.ofObjects)
		}
	}
}
