package reflection

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var ctx = context.Background()

var errDead = errors.New("the process has died")

func invalid(words string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "x", field.ErrorList{field.Invalid(field.NewPath("data"), words, words)})
}

// world is a home and a provider on one API server, kept apart by names. The tenant and
// the peering have one name.
type world struct {
	t         *testing.T
	raw       client.WithWatch // counts nothing, fails never
	client    client.WithWatch
	clock     *testingclock.FakeClock
	name      string // of the peering, its node and the tenant
	home      string // namespace
	remote    string // mapped namespace
	kind      string // of the objects that the helpers speak of
	recorded  *events.FakeRecorder
	state     fleet.State
	gone      bool // there is no connection to it
	full      bool // it has as many as are read
	writes    int
	dieAfter  int    // writes; -1 is never
	meanwhile func() // once, when the provider's side is read
	fail      func(verb string, obj client.Object) error
	reads     int                    // of content at home
	names     int                    // and of metadata
	provided  int                    // of objects at the provider
	shadows   int                    // of ShadowObjects with their content
	lists     int                    // of Secrets and ConfigMaps at home
	forbidden bool                   // reading Secrets and ConfigMaps at home
	woken     []v1alpha1.HomeObject  // by the lister
	minted    int                    // tokens
	others    map[string]fleet.State // of other providers
	addresses Addresses
	allowed   Allowed
	changing  *changing // of a manager
	frozen    frozen    // what the mirror shows of ShadowObjects, if it is behind
	tunnels   *fakeTunnels

	consumer *consumer
	provider *provider
	sweeper  *sweeper
	lister   *lister
	shower   *shower
	shows    int // how often it was asked for
}

func (w *world) TenantNamespace() string { return v1alpha1.TenantNamespace(w.name) }
func (w *world) Client() client.Client   { return w.client }
func (w *world) Reader() client.Reader   { return mirror{w} }
func (w *world) State() fleet.State      { return w.state }
func (w *world) Full(client.Object) bool { return w.full }

func (w *world) WatchWithin(client.Object, fleet.Bounds) error { return nil }
func (w *world) Watch(client.Object) error                     { return nil }
func (w *world) Peer(peering string) (Peer, bool) {
	if state, ok := w.others[peering]; ok {
		return other{w, state}, true
	}
	return w, !w.gone
}
func (w *world) Source(client.Object, func(string, client.Object) []reconcile.Request) source.Source {
	return nil
}
func (w *world) StateSourceAt(fleet.Pace, func(string) []reconcile.Request) source.Source {
	return nil
}

// other is another provider, of which only the state matters.
type other struct {
	*world
	state fleet.State
}

func (o other) State() fleet.State { return o.state }

// mirror reads as the fleet's does: without content, and only this tenant's.
type mirror struct{ w *world }

func (m mirror) Get(ctx context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if do := m.w.meanwhile; do != nil {
		m.w.meanwhile = nil
		do()
	}
	if m.w.frozen != nil {
		if s, ok := obj.(*v1alpha1.ShadowObject); ok {
			return m.w.frozen.of(key, s)
		}
	}
	err := m.w.raw.Get(ctx, key, obj)
	if s, ok := obj.(*v1alpha1.ShadowObject); ok {
		s.Spec.Object = ""
	}
	return err
}

func (m mirror) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	return m.w.raw.List(ctx, list, client.InNamespace(m.w.TenantNamespace()))
}

// frozen are ShadowObjects as they were.
type frozen map[string]v1alpha1.ShadowObject

func (f frozen) of(key client.ObjectKey, into *v1alpha1.ShadowObject) error {
	s, ok := f[key.Name]
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "shadowobjects"}, key.Name)
	}
	s.DeepCopyInto(into)
	into.Spec.Object = ""
	return nil
}

// freeze lets the mirror show what is there now, until frozen is nil.
func (w *world) freeze() {
	w.t.Helper()
	list := &v1alpha1.ShadowObjectList{}
	if err := w.raw.List(ctx, list, client.InNamespace(w.TenantNamespace())); err != nil {
		w.t.Fatal(err)
	}
	w.frozen = frozen{}
	for _, s := range list.Items {
		w.frozen[s.Name] = s
	}
}

// deny sets the kinds that the provider does not take.
func (w *world) deny(kinds ...string) {
	w.t.Helper()
	tenant := get(w, "", w.name, &v1alpha1.Tenant{})
	tenant.Spec.Reflection = &v1alpha1.TenantReflection{Deny: kinds}
	if err := w.raw.Update(ctx, tenant); err != nil {
		w.t.Fatal(err)
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server := kubetest.Server(t)
	w := &world{t: t, raw: server.Client(t), clock: testingclock.NewFakeClock(time.Now().Truncate(time.Second)), name: server.Name(t, "milan"),
		home: server.Namespace(t), recorded: events.NewFakeRecorder(1000), dieAfter: -1, kind: kindSecret, tunnels: &fakeTunnels{state: map[string]bool{}},
		state: fleet.State{Reachable: true, Reason: v1alpha1.ReasonPeerReachable}}
	w.remote = w.name + "-shop"
	do := func(verb string, obj client.Object, call func() error) error {
		if w.dieAfter >= 0 && w.writes >= w.dieAfter {
			return errDead
		}
		w.writes++
		if w.fail != nil {
			if err := w.fail(verb, obj); err != nil {
				return err
			}
		}
		err := call()
		if apierrors.IsAlreadyExists(err) && w.dieAfter >= 0 {
			w.dieAfter++ // nothing was written
		}
		return err
	}
	w.client = interceptor.NewClient(server.Client(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			_, names := obj.(*metav1.PartialObjectMetadata)
			read := key.Namespace == w.home && slices.Contains([]string{kindSecret, kindConfigMap}, kindOfObject(c, obj))
			switch {
			case read && names:
				w.names++
			case read:
				w.reads++
			case kindOfObject(c, obj) == "ShadowObject" && !names:
				w.shadows++
			case key.Namespace == w.remote:
				w.provided++
			}
			if read && w.forbidden {
				return apierrors.NewForbidden(schema.GroupResource{}, key.Name, nil)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			kind := kindOfObject(c, list)
			in := (&client.ListOptions{}).ApplyOptions(opts).Namespace
			if w.forbidden && in == w.home {
				return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
			}
			if in != w.remote && (kind == "SecretList" || kind == "ConfigMapList") {
				w.lists++
				if _, names := list.(*metav1.PartialObjectMetadataList); !names || in != w.home {
					t.Errorf("a list of %T in %q", list, in)
				}
			}
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return do("create", obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return do("patch", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return do("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourceCreate: func(ctx context.Context, c client.Client, sub string, obj, made client.Object, opts ...client.SubResourceCreateOption) error {
			if sub == "token" {
				w.minted++
				if w.fail != nil {
					if err := w.fail("token", obj); err != nil {
						return err
					}
				}
			}
			return c.SubResource(sub).Create(ctx, obj, made, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return do(sub, obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
	w.restart()
	w.label(w.home, map[string]string{v1alpha1.LabelOffloaded: "true"})
	w.namespace(w.TenantNamespace(), nil)
	w.namespace(w.remote, map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: w.home})
	w.create(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: w.name}, Spec: v1alpha1.TenantSpec{ClusterID: string(uuid.NewUUID()), PeeringUID: string(uuid.NewUUID())}})
	w.create(&v1alpha1.NamespaceMap{ObjectMeta: objectMeta(w.TenantNamespace(), v1alpha1.NamespaceMapName)})
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingReady})
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: w.name}}})
	return w
}

// restart makes new processes, which remember nothing.
func (w *world) restart() {
	m := newMeter()
	list := func(ctx context.Context, home v1alpha1.HomeObject) ([]corev1.Pod, error) {
		all, found := &corev1.PodList{}, []corev1.Pod(nil)
		err := w.raw.List(ctx, all, client.InNamespace(home.Namespace))
		for i := range all.Items {
			for _, key := range indices[byObject](&all.Items[i]) {
				if key == keyOf(home) {
					found = append(found, all.Items[i])
				}
			}
		}
		return found, err
	}
	spaces := func(ctx context.Context, _, namespace string) (bool, error) {
		all := &corev1.PodList{}
		err := w.raw.List(ctx, all, client.InNamespace(namespace))
		return slices.ContainsFunc(all.Items, func(p corev1.Pod) bool { return p.Spec.NodeName == w.name && !over(&p) }), err
	}
	w.consumer = &consumer{client: w.client, live: w.client, fleet: w, clock: w.clock, pods: list, spaces: spaces, addresses: w.addresses, tunnels: w.tunnels, share: maxOnward, sooner: rate.NewLimiter(soonerRate, soonerBurst), events: w.recorded, budget: fleet.NewBudget(), meter: m, notes: newNotes[note]()}
	w.consumer.show = func(context.Context, reconcile.Request) { w.shows++ }
	w.shower = newShower(w.consumer)
	w.provider = &provider{client: w.client, live: w.client, clock: w.clock, allowed: w.allowed, tunnels: w.tunnels, meter: m, notes: newNotes[made](), pace: newPacer(w.clock)}
	w.sweeper = &sweeper{client: w.client, live: w.client}
	wake := func(_ context.Context, r reconcile.Request) {
		if peering, home, _ := split(r); peering == w.name { // other worlds have nodes here, too
			w.woken = append(w.woken, home)
		}
	}
	w.lister = &lister{client: w.client, live: w.client, fleet: w, spaces: spaces, mapped: mapped(w.client), clock: w.clock, notes: w.consumer.notes, events: w.recorded, wake: wake}
}

func kindOfObject(c client.Client, obj runtime.Object) string {
	gvk, _ := apiutil.GVKForObject(obj, c.Scheme())
	return gvk.Kind
}

func (w *world) create(obj client.Object) {
	w.t.Helper()
	if err := w.raw.Create(ctx, obj); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.raw.Delete(ctx, obj, client.GracePeriodSeconds(0)) })
}

func (w *world) namespace(name string, labels map[string]string) {
	w.t.Helper()
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
}

func (w *world) label(namespace string, labels map[string]string) {
	w.t.Helper()
	n := &corev1.Namespace{}
	if err := w.raw.Get(ctx, client.ObjectKey{Name: namespace}, n); err != nil {
		w.t.Fatal(err)
	}
	n.Labels = labels
	if err := w.raw.Update(ctx, n); err != nil {
		w.t.Fatal(err)
	}
}

// mapped says what became of the home namespace here.
func (w *world) mapped(m v1alpha1.MappedNamespace) {
	w.t.Helper()
	nm := &v1alpha1.NamespaceMap{}
	if err := w.raw.Get(ctx, client.ObjectKey{Namespace: w.TenantNamespace(), Name: v1alpha1.NamespaceMapName}, nm); err != nil {
		w.t.Fatal(err)
	}
	nm.Status.ObservedGeneration = nm.Generation
	nm.Status.Namespaces = map[string]v1alpha1.MappedNamespace{w.home: m}
	if err := w.raw.Status().Update(ctx, nm); err != nil {
		w.t.Fatal(err)
	}
}

// pod makes one that names image pull secrets.
func (w *world) pod(name string, secrets ...string) *corev1.Pod {
	w.t.Helper()
	return w.podWith(name, func(spec *corev1.PodSpec) {
		for _, s := range secrets {
			spec.ImagePullSecrets = append(spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
		}
	})
}

// podWith makes one on the virtual node.
func (w *world) podWith(name string, edit func(*corev1.PodSpec)) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: objectMeta(w.home, name), Spec: corev1.PodSpec{NodeName: w.name,
		Containers:  []corev1.Container{{Name: "c", Image: "i"}},
		Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}}}
	edit(&p.Spec)
	w.create(p)
	return p
}

func (w *world) of(name string) v1alpha1.HomeObject {
	return v1alpha1.HomeObject{Kind: w.kind, Namespace: w.home, Name: name}
}

func (w *world) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.TenantNamespace(), Name: v1alpha1.ShadowObjectName(w.of(name))}
}

// send lets the consumer look at an object, take the provider; errors fail the test.
func (w *world) send(name string) ctrl.Result {
	w.t.Helper()
	w.clock.Step(readEvery)
	res, err := w.consumer.Reconcile(ctx, at(w.name, w.of(name)))
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func (w *world) take(name string) ctrl.Result {
	w.t.Helper()
	w.clock.Step(readEvery)
	res, err := w.provider.Reconcile(ctx, ctrl.Request{NamespacedName: w.key(name)})
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func (w *world) sweep() {
	w.t.Helper()
	if _, err := w.sweeper.Reconcile(ctx, ctrl.Request{NamespacedName: types.NamespacedName{Name: w.remote}}); err != nil {
		w.t.Fatal(err)
	}
}

// both lets everything look at an object.
func (w *world) both(name string) {
	w.t.Helper()
	w.send(name)
	w.take(name)
	w.sweep()
}

func get[T client.Object](w *world, namespace, name string, into T) T {
	w.t.Helper()
	var none T
	err := w.raw.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		return none
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return into
}

// made is the Secret at the provider, nil if there is none.
func (w *world) made(name string) *corev1.Secret { return get(w, w.remote, name, &corev1.Secret{}) }

func (w *world) shadow(name string) *v1alpha1.ShadowObject {
	return get(w, w.TenantNamespace(), w.key(name).Name, &v1alpha1.ShadowObject{})
}

// login is a configuration with a password in it.
func login(password string) []byte {
	return fmt.Appendf(nil, `{"auths":{"registry.example":{"username":"u","password":%q}}}`, password)
}

func pullSecret(namespace, name, password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: objectMeta(namespace, name), Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: login(password)}}
}

// token is a Secret that does not travel.
func token(namespace, name string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: objectMeta(namespace, name), Type: tokenType, Data: map[string][]byte{"a": []byte("s3cret")}}
	s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
	return s
}

// text is what a consumer writes of a Secret.
func text(kind, key string, value []byte) string {
	return fmt.Sprintf(`{"content":{"type":%q,"data":{%q:%q}}}`, kind, key, base64.StdEncoding.EncodeToString(value))
}

const (
	jsonType  = "kubernetes.io/dockerconfigjson"
	jsonKey   = ".dockerconfigjson"
	cfgType   = "kubernetes.io/dockercfg"
	cfgKey    = ".dockercfg"
	tokenType = "kubernetes.io/service-account-token"
)

// password is what the provider could pull with.
func (w *world) password(name string) string {
	s := w.made(name)
	if s == nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(string(s.Data[jsonKey]), `{"auths":{"registry.example":{"username":"u","password":"`), `"}}}`)
}

// told counts the events that hold words, and fails the test if one tells a secret.
func (w *world) told(words string) int {
	for n := 0; ; {
		select {
		case e := <-w.recorded.Events:
			if strings.Contains(e, "s3cret") {
				w.t.Errorf("an event tells: %s", e)
			}
			if strings.Contains(e, words) {
				n++
			}
		default:
			return n
		}
	}
}

// answer is the condition Accepted.
func (w *world) answer(name string) string {
	s := w.shadow(name)
	if s == nil {
		return "gone"
	}
	for _, c := range s.Status.Conditions {
		if strings.Contains(c.Message, "s3cret") {
			w.t.Errorf("a condition tells: %s", c.Message)
		}
		if c.Type == v1alpha1.ConditionAccepted {
			return fmt.Sprintf("%s/%s", c.Status, c.Reason)
		}
	}
	return ""
}
