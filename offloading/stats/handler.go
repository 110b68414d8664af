package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/access"
)

// atOnce is how many lists are made at the same time.
const atOnce = 16

// Options are what the provider's side needs. All are required but Clock and Logger.
type Options struct {
	// Reader reads pods, namespaces and nodes; the manager's cache.
	Reader client.Reader
	// Config reaches this cluster's API server; its authority is the first that kubelets
	// are judged by.
	Config *rest.Config
	// Writer makes tokens of the service account AccountName.
	Writer client.Client
	// Namespace of Pelago, with that account; v1alpha1.SystemNamespace if empty.
	Namespace string
	// Authorities say which front proxies may ask.
	Authorities *access.Authorities
	// Clock is the real one if nil.
	Clock clock.PassiveClock
	// Logger is told what goes wrong.
	Logger logr.Logger
}

// Handler serves everything below Path, to API servers only: they have authenticated
// and authorised whoever asks. The listener must ask for client certificates.
func Handler(o Options) (http.Handler, error) {
	if o.Reader == nil || o.Config == nil || o.Writer == nil || o.Authorities == nil {
		return nil, errors.New("serving podstats: Reader, Config, Writer and Authorities have to be given")
	}
	if o.Namespace == "" {
		o.Namespace = v1alpha1.SystemNamespace
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	nodes, err := newKubelets(o)
	if err != nil {
		return nil, err
	}
	return &handler{options: o, kubelets: nodes, places: make(chan struct{}, atOnce)}, nil
}

// handler is the aggregated API.
type handler struct {
	options  Options
	kubelets reader
	places   chan struct{}
	group    singleflight.Group
}

// errBusy says that there is no place.
var errBusy = errors.New("too many lists are being made")

// reader tells what the containers of nodes use.
type reader interface {
	read(ctx context.Context, nodes []*corev1.Node) figures
}

// ServeHTTP answers one request of an API server.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, ok := h.options.Authorities.Proxied(r, h.options.Clock); !ok {
		say(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "only the API server is answered here")
		return
	}
	if r.Method != http.MethodGet {
		say(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "podstats can only be listed")
		return
	}
	const root = Path + "/" + Version
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch {
	case path == Path:
		write(w, group())
	case path == root:
		write(w, resources())
	case strings.HasPrefix(path, root+"/namespaces/"):
		namespace, ok := strings.CutSuffix(strings.TrimPrefix(path, root+"/namespaces/"), "/"+Resource)
		if !ok || len(validation.IsDNS1123Label(namespace)) > 0 {
			say(w, http.StatusNotFound, metav1.StatusReasonNotFound, "there is podstats only")
			return
		}
		h.list(w, r, namespace)
	default:
		say(w, http.StatusNotFound, metav1.StatusReasonNotFound, "there is podstats in tenant namespaces only")
	}
}

// list answers with what the pods of the tenant use that has the namespace.
func (h *handler) list(w http.ResponseWriter, r *http.Request, namespace string) {
	list := List{TypeMeta: metav1.TypeMeta{APIVersion: Group + "/" + Version, Kind: "PodStatsList"}, Items: []Pod{}}
	name, isTenant := strings.CutPrefix(namespace, v1alpha1.TenantNamespacePrefix)
	if !isTenant || r.URL.Query().Get("watch") == "true" {
		write(w, list)
		return
	}
	// One question for all that a tenant asks at a time: no tenant has more than one place.
	found, err, _ := h.group.Do(name, func() (any, error) {
		select {
		case h.places <- struct{}{}:
			defer func() { <-h.places }()
		default:
			return nil, errBusy
		}
		ctx := context.WithoutCancel(r.Context()) // its parts have their own limits
		pods, err := h.podsOf(ctx, name)
		if err != nil {
			return nil, err
		}
		return h.usage(ctx, pods)
	})
	switch {
	case errors.Is(err, errBusy):
		say(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "many others are asking; try again")
		return
	case err != nil:
		h.options.Logger.Error(err, "podstats not listed", "tenant", name)
		say(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "the pods could not be read")
		return
	}
	list.Items = found.([]Pod)
	write(w, list)
}

// +kubebuilder:rbac:groups="",resources=pods;namespaces;nodes,verbs=get;list;watch

// podsOf are the pods that run for a tenant: by their label, in namespaces that are
// mapped for the same tenant.
func (h *handler) podsOf(ctx context.Context, tenant string) ([]corev1.Pod, error) {
	var namespaces corev1.NamespaceList
	if err := h.options.Reader.List(ctx, &namespaces, client.MatchingLabels{v1alpha1.LabelTenant: tenant}); err != nil {
		return nil, fmt.Errorf("listing the tenant's namespaces: %w", err)
	}
	var all []corev1.Pod
	for i := range namespaces.Items {
		if namespaces.Items[i].Labels[v1alpha1.LabelHomeNamespace] == "" {
			continue
		}
		var pods corev1.PodList
		err := h.options.Reader.List(ctx, &pods, client.InNamespace(namespaces.Items[i].Name),
			client.MatchingLabels{v1alpha1.LabelTenant: tenant}, client.HasLabels{v1alpha1.LabelHomeUID}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return nil, fmt.Errorf("listing the tenant's pods: %w", err)
		}
		for n := range pods.Items {
			if p := &pods.Items[n]; p.Spec.NodeName != "" && p.Status.Phase == corev1.PodRunning && len(all) < maxPods {
				all = append(all, *p)
			}
		}
	}
	return all, nil
}

// usage is what pods use, of those of which it is known.
func (h *handler) usage(ctx context.Context, pods []corev1.Pod) ([]Pod, error) {
	seen := map[string]bool{}
	var nodes []*corev1.Node
	for i := range pods {
		name := pods[i].Spec.NodeName
		if seen[name] {
			continue
		}
		seen[name] = true
		node := &corev1.Node{}
		if err := h.options.Reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading a node: %w", err)
			}
			continue
		}
		if node.Labels[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode {
			nodes = append(nodes, node)
		}
	}
	found := h.kubelets.read(ctx, nodes)
	items := []Pod{}
	for i := range pods {
		if u, ok := found[pods[i].Spec.NodeName][string(pods[i].UID)]; ok {
			items = append(items, told(&pods[i], u))
		}
	}
	return items, nil
}

// told is what a tenant is told of one of its pods.
func told(pod *corev1.Pod, u used) Pod {
	t := Pod{
		Metadata: Home{
			Namespace: pod.Annotations[v1alpha1.AnnotationHomeNamespace], Name: pod.Annotations[v1alpha1.AnnotationHomeName],
			UID: pod.Labels[v1alpha1.LabelHomeUID],
		},
		Containers: []Container{},
	}
	if t.Metadata.Name == "" {
		t.Metadata.Name = pod.Name
	}
	if pod.Status.StartTime != nil {
		t.StartTime = *pod.Status.StartTime
	}
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses)
	for _, c := range u.containers {
		for _, s := range statuses {
			if s.Name == c.Name {
				c.Restarts = s.RestartCount
			}
		}
		t.Containers = append(t.Containers, c)
	}
	return t
}

// group is the group's discovery document.
func group() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + Version, Version: Version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: Group,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}

// resources is the version's discovery document.
func resources() metav1.APIResourceList {
	return metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: Group + "/" + Version,
		APIResources: []metav1.APIResource{{
			Name: Resource, SingularName: Resource, Namespaced: true, Kind: "PodStats", Verbs: metav1.Verbs{"list"},
		}},
	}
}

func write(w http.ResponseWriter, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		say(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "the answer cannot be written")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// say answers with a Status, as clients of Kubernetes expect.
func say(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	text, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: message,
	})
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}
