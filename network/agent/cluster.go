package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/network/ration"
)

// Nodes and Leases tell who may be gateway, NetworkConfigs, the keys and the rest who may
// reach whom. Metrics are shown to whom the cluster allows it.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch,roleName=pelago-agent
// +kubebuilder:rbac:groups="",resources=pods;namespaces;services,verbs=list;watch,roleName=pelago-agent
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch,roleName=pelago-agent
// +kubebuilder:rbac:groups=pelago.dev,resources=networkconfigs;networkrules;networkpaths;namespacemaps;namespaceoffloadings;ipmappings,verbs=list;watch,roleName=pelago-agent
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=pelago-network-keys,verbs=get;list;watch,namespace=pelago-network,roleName=pelago-agent
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=pelago-agent
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=pelago-agent

// cluster is what this node's agent sees of its cluster.
type cluster struct {
	options Options
	direct  *kube.Client
	main    *kube.Cache
	// changed is called when a plan may be another one, and passed when a pod of a tenant has
	// changed and that means nothing to a plan.
	changed, passed func()
	versions        versions
	heralds         heralds
	rations         ration.Rations
	book            rulebook
	group           *errgroup.Group
	ready           chan struct{}
	mtu             linkMTU

	mu      sync.Mutex
	context context.Context
	follows map[subject]*follow
	// alive are the other nodes whose agents are, and serves says that tunnels end here.
	alive  map[string]bool
	serves bool
	// is what this node was when it was looked at last.
	is standing
}

// subject is what is followed beside: the pods of a virtual node, or the slices of a
// namespace, or of one Service in it, or the pods of a namespace, or its Services, or the pods that a
// selector names as callers.
type subject struct{ node, namespace, service, pods, services, callers string }

// follow is a cache of one subject.
type follow struct {
	*kube.Cache
	end context.CancelFunc
}

// kinds are those that agents read or write, and whether they live in namespaces.
var kinds = map[schema.GroupVersionKind]apimeta.RESTScope{
	corev1.SchemeGroupVersion.WithKind("Node"):                         apimeta.RESTScopeRoot,
	corev1.SchemeGroupVersion.WithKind("Namespace"):                    apimeta.RESTScopeRoot,
	corev1.SchemeGroupVersion.WithKind("Pod"):                          apimeta.RESTScopeNamespace,
	corev1.SchemeGroupVersion.WithKind("Service"):                      apimeta.RESTScopeNamespace,
	corev1.SchemeGroupVersion.WithKind("Secret"):                       apimeta.RESTScopeNamespace,
	coordinationv1.SchemeGroupVersion.WithKind("Lease"):                apimeta.RESTScopeNamespace,
	discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):           apimeta.RESTScopeNamespace,
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"):                    apimeta.RESTScopeNamespace,
	v1alpha1.GroupVersion.WithKind("NetworkConfig"):                    apimeta.RESTScopeNamespace,
	v1alpha1.GroupVersion.WithKind("NetworkRules"):                     apimeta.RESTScopeNamespace,
	v1alpha1.GroupVersion.WithKind("NetworkPath"):                      apimeta.RESTScopeNamespace,
	v1alpha1.GroupVersion.WithKind("NamespaceMap"):                     apimeta.RESTScopeNamespace,
	v1alpha1.GroupVersion.WithKind("NamespaceOffloading"):              apimeta.RESTScopeNamespace,
	v1alpha1.GroupVersion.WithKind("IPMapping"):                        apimeta.RESTScopeNamespace,
	authenticationv1.SchemeGroupVersion.WithKind("TokenReview"):        apimeta.RESTScopeRoot,
	authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"): apimeta.RESTScopeRoot,
}

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, discoveryv1.AddToScheme, appsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	return scheme, nil
}

// newMapper knows the kinds without asking.
func newMapper() apimeta.RESTMapper {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	for kind, scope := range kinds {
		v1alpha1.AddKind(mapper, kind, scope)
	}
	return mapper
}

// NewClient makes a client of the kinds that agents know.
func NewClient(config *rest.Config) (*kube.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	return kube.New(config, scheme, newMapper())
}

// newCluster makes the caches. Leases of other nodes are told to saw, of all else that
// it is not what it was to changed, and of pods of tenants that they are, but for what nobody
// reads, to passed.
func newCluster(o Options, changed, passed func(), saw func(string, *coordinationv1.Lease)) (*cluster, error) {
	direct, err := NewClient(o.Config)
	if err != nil {
		return nil, err
	}
	c := &cluster{
		options: o, direct: direct, changed: changed, passed: passed, ready: make(chan struct{}), follows: map[subject]*follow{}, alive: map[string]bool{},
	}
	tenants := having(v1alpha1.LabelTenant, v1alpha1.LabelHomeUID)
	given := having(v1alpha1.LabelTenant).Add(requirement(discoveryv1.LabelManagedBy, selection.Equals, v1alpha1.GroupVersion.Group))
	all := []kube.Query{
		{Of: &corev1.Node{}}, {Of: &v1alpha1.NetworkConfig{}}, {Of: &v1alpha1.NetworkRules{}}, {Of: &v1alpha1.NetworkPath{}},
		{Of: &v1alpha1.NamespaceMap{}}, {Of: &v1alpha1.NamespaceOffloading{}}, {Of: &v1alpha1.IPMapping{}},
		{Of: &corev1.Secret{}, Namespace: o.Namespace, Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.NetworkKeysName)},
		{Of: &corev1.Pod{}, Labels: tenants},
		{Of: &corev1.Namespace{}, Labels: having(v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace)},
		{Of: &discoveryv1.EndpointSlice{}, Labels: given},
	}
	if c.main, err = c.direct.Cache(trim, append(all, kube.Query{Of: &coordinationv1.Lease{}, Namespace: o.Namespace})...); err != nil {
		return nil, err
	}
	for _, q := range all {
		if err := c.main.Listen(q.Of, c.notify(q.Of)); err != nil {
			return nil, err
		}
	}
	return c, c.main.Listen(&coordinationv1.Lease{}, leases(saw))
}

// having selects objects that have labels.
func having(keys ...string) labels.Selector {
	s := labels.NewSelector()
	for _, key := range keys {
		s = s.Add(requirement(key, selection.Exists))
	}
	return s
}

func requirement(key string, is selection.Operator, values ...string) labels.Requirement {
	r, err := labels.NewRequirement(key, is, values)
	if err != nil {
		panic(err) // all of them are constants
	}
	return *r
}

// notify tells of all objects of a kind that are not as they were: of those that other clusters
// write, as often as each may cause a plan.
func (c *cluster) notify(o kube.Object) toolscache.ResourceEventHandler {
	switch o.(type) {
	case *v1alpha1.NetworkConfig, *v1alpha1.NetworkPath, *v1alpha1.NamespaceMap:
		return notify(c.rationed)
	case *v1alpha1.NetworkRules:
		return notify(c.ruled)
	case *corev1.Pod:
		return c.versions.notify(hostedStream, c.changed, c.passed)
	}
	return notify(always(c.changed))
}

// rationed tells that something has changed in the namespace of a peering, soon.
func (c *cluster) rationed(o any) {
	of, ok := o.(kube.Object)
	if !ok { // gone, and nobody knows what it was
		c.changed()
		return
	}
	c.ration(of.GetNamespace())
}

// ration tells that something has changed that is another cluster's word, of a peering by any name, soon.
func (c *cluster) ration(namespace string) {
	c.rations.Ask(namespace, time.Now(), c.changed)
}

// ruled tells that NetworkRules have changed: those of tenants as often as these may cause a plan,
// this cluster's own at once.
func (c *cluster) ruled(o any) {
	if of, ok := o.(kube.Object); ok && strings.HasPrefix(of.GetNamespace(), v1alpha1.PeeringNamespacePrefix) {
		c.changed()
		return
	}
	c.rationed(o)
}

func always(changed func()) func(any) { return func(any) { changed() } }

// notify tells of all that is not as it was.
func notify(changed func(any)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: changed, DeleteFunc: changed,
		UpdateFunc: func(before, after any) {
			if !same(before, after) {
				changed(after)
			}
		},
	}
}

func leases(saw func(string, *coordinationv1.Lease)) toolscache.ResourceEventHandler {
	is := func(o any) {
		if l, ok := o.(*coordinationv1.Lease); ok {
			saw(l.Name, l)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: is, UpdateFunc: func(_, after any) { is(after) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if l, ok := o.(*coordinationv1.Lease); ok {
				saw(l.Name, nil)
			}
		},
	}
}

// run fills the caches until ctx ends.
func (c *cluster) run(ctx context.Context) error {
	group, inner := errgroup.WithContext(ctx)
	c.mu.Lock()
	c.context, c.group = inner, group
	c.mu.Unlock()
	close(c.ready)
	group.Go(func() error { c.main.Run(inner); return nil })
	err := group.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.context = nil
	return err
}

// waitMost is how long the pods and slices of single virtual nodes and namespaces are waited
// for, before a node goes without.
const waitMost = 10 * time.Second

// wait waits until all is known, and reports whether it is.
func (c *cluster) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.ready:
	}
	if !c.main.Wait(ctx) {
		return false
	}
	c.settle(ctx)
	return ctx.Err() == nil
}

// settle waits until that is known which is followed beside, and returns what is known then.
func (c *cluster) settle(ctx context.Context) facts {
	limited, cancel := context.WithTimeout(ctx, waitMost)
	defer cancel()
	for range 2 { // what slices say may have pods followed
		c.gather()
		for _, f := range c.followed() {
			if !f.Wait(limited) {
				c.options.Log.Info("not all that may be reached is known yet")
			}
		}
	}
	return c.gather()
}

func (c *cluster) followed() map[subject]*follow {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.follows)
}

// follow has what is wanted followed, and nothing else.
func (c *cluster) follow(want map[subject]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.context == nil || c.context.Err() != nil {
		return
	}
	for s, f := range c.follows {
		if !want[s] {
			f.end()
			delete(c.follows, s)
			c.versions.forget(stream{node: s.node})
		}
	}
	for s := range want {
		if c.follows[s] != nil {
			continue
		}
		f, err := c.begin(s)
		if err != nil {
			c.options.Log.Error(err, "following", "node", s.node, "namespace", cmp.Or(s.namespace, s.pods, s.services), "service", s.service, "callers", s.callers)
			continue
		}
		c.follows[s] = f
	}
}

func (c *cluster) begin(s subject) (*follow, error) {
	query := kube.Query{Of: &corev1.Pod{}, Fields: fields.OneTermEqualSelector("spec.nodeName", s.node)}
	if s.namespace != "" {
		// What Pelago has made here stands for pods elsewhere, but in its own namespace.
		of := labels.NewSelector()
		if s.namespace != v1alpha1.SystemNamespace {
			of = of.Add(requirement(discoveryv1.LabelManagedBy, selection.NotEquals, v1alpha1.GroupVersion.Group), requirement(v1alpha1.LabelManagedBy, selection.DoesNotExist))
		}
		if s.service != "" {
			of = of.Add(requirement(discoveryv1.LabelServiceName, selection.Equals, s.service))
		}
		query = kube.Query{Of: &discoveryv1.EndpointSlice{}, Namespace: s.namespace, Labels: of}
	}
	if s.pods != "" {
		query = kube.Query{Of: &corev1.Pod{}, Namespace: s.pods}
	}
	if s.services != "" {
		query = kube.Query{Of: &corev1.Service{}, Namespace: s.services}
	}
	if s.callers != "" {
		var err error
		if query, err = callerQuery(s.callers); err != nil {
			return nil, err
		}
	}
	made, err := c.direct.Cache(trim, query)
	if err != nil {
		return nil, err
	}
	handler := notify(always(c.changed))
	if s.node != "" { // what means nothing is said with the next renewal
		handler = c.versions.notify(func(*corev1.Pod) stream { return stream{node: s.node} }, c.changed, func() {})
	}
	if err := made.Listen(query.Of, handler); err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(c.context)
	c.group.Go(func() error { made.Run(ctx); return nil })
	return &follow{made, end}, nil
}
