package torture

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Labels of the pods of a storm: what they belong to, the version of its template, and
// what they were marked with since.
const (
	LabelPlace = "torture"
	LabelApp   = "app"
	LabelTier  = "tier"
	LabelMark  = "mark"
)

// lostNode are the reasons that Kubernetes gives when it deletes pods of a lost node: one that does
// not answer, and one that is not there any more. What is evicted for another reason, as by an
// unoffload, is somebody's will.
var lostNode = []string{"DeletionByTaintManager", "DeletionByPodGC"}

// World is what is known of both clusters, and when.
type World struct {
	Home, Remote Cluster
	Now          time.Time
	// Calls are the last of each caller to each place's vault; Tally counts all.
	Calls map[string]Call
	Tally Tally
}

// NewWorld is one without anything in it.
func NewWorld() *World {
	return &World{Home: newCluster(), Remote: newCluster(), Calls: map[string]Call{}}
}

// Cluster is what is known of one: of each kind what the rules look at, by UID. Only
// objects that have to do with the storm are in it.
type Cluster struct {
	Pods       map[string]Pod
	Jobs       map[string]JobState
	Secrets    map[string]Held
	Configs    map[string]Held // ConfigMaps
	Services   map[string]Service
	Slices     map[string]Slice
	Shadows    map[string]Shadow
	Namespaces map[string]string // names
}

func newCluster() Cluster {
	return Cluster{Pods: map[string]Pod{}, Jobs: map[string]JobState{}, Secrets: map[string]Held{}, Configs: map[string]Held{}, Services: map[string]Service{}, Slices: map[string]Slice{},
		Shadows: map[string]Shadow{}, Namespaces: map[string]string{}}
}

// Pod is what the rules look at.
type Pod struct {
	UID, Namespace, Name     string
	Place, App, Tier, Mark   string
	Node, Phase, IP          string
	HomeUID                  string // of the home pod, at the provider
	Ready, Deleting, Counted bool   // Counted: of a Job
	// Live says that a container runs, Unique that there must never be two of its name.
	Live, Unique bool
	// Evicted says that home has given up its node.
	Evicted bool
}

// JobState is how a Job stands.
type JobState struct {
	Namespace, Name  string
	Succeeded        int
	Complete, Failed bool
}

// Held is where values of the storm's Secrets and ConfigMaps were found.
type Held struct {
	Namespace, Name string
	Canaries        []Canary
}

// Canary is a value that tells which Secret or ConfigMap it is of, and in which version.
type Canary struct {
	Place, Object, Version string
}

var canary = regexp.MustCompile(`canary\.([a-z]+)\.([a-z]+)\.([0-9]+)`)

// String is the value that is put into one.
func (c Canary) String() string { return fmt.Sprintf("canary.%s.%s.%s", c.Place, c.Object, c.Version) }

// Shadow is a ShadowPod, or a ShadowObject, of which Kind tells the kind at home.
type Shadow struct {
	Namespace, Name     string
	Kind                string // empty for a pod
	HomePlace, HomeName string
	Phase               string
}

// Set notes an object as it is now; if gone, that it is not there any more.
func (c *Cluster) Set(object client.Object, gone bool) {
	uid := string(object.GetUID())
	switch o := object.(type) {
	case *corev1.Pod:
		set(c.Pods, uid, podOf(o), !gone && (o.Labels[LabelPlace] != "" || o.Labels[v1alpha1.LabelHomeUID] != ""))
	case *batchv1.Job:
		set(c.Jobs, uid, jobOf(o), !gone && slices.Contains(Places, o.Namespace))
	case *corev1.Secret:
		h := heldBy(o, values(o.Data)...)
		set(c.Secrets, uid, h, !gone && len(h.Canaries) > 0)
	case *corev1.ConfigMap:
		h := heldBy(o)
		for _, value := range o.Data {
			h.add([]byte(value))
		}
		set(c.Configs, uid, h, !gone && len(h.Canaries) > 0)
	case *corev1.Service:
		set(c.Services, uid, serviceOf(o), !gone && IsService(o.Name))
	case *discoveryv1.EndpointSlice:
		s := sliceOf(o)
		set(c.Slices, uid, s, !gone && IsService(s.Service))
	case *v1alpha1.ShadowPod:
		set(c.Shadows, uid, Shadow{Namespace: o.Namespace, Name: o.Name, HomePlace: o.Spec.Home.Namespace, HomeName: o.Spec.Home.Name, Phase: o.Status.Phase}, !gone)
	case *v1alpha1.ShadowObject:
		set(c.Shadows, uid, Shadow{Namespace: o.Namespace, Name: o.Name, Kind: o.Spec.Home.Kind, HomePlace: o.Spec.Home.Namespace, HomeName: o.Spec.Home.Name}, !gone)
	case *corev1.Namespace:
		set(c.Namespaces, uid, o.Name, !gone)
	default:
		panic(fmt.Sprintf("a %T is not part of the world", object))
	}
}

func set[T any](all map[string]T, uid string, value T, there bool) {
	if there {
		all[uid] = value
	} else {
		delete(all, uid)
	}
}

func podOf(o *corev1.Pod) Pod {
	p := Pod{
		UID: string(o.UID), Namespace: o.Namespace, Name: o.Name,
		Place: o.Labels[LabelPlace], App: o.Labels[LabelApp], Tier: o.Labels[LabelTier], Mark: o.Labels[LabelMark],
		Node: o.Spec.NodeName, Phase: string(o.Status.Phase), HomeUID: o.Labels[v1alpha1.LabelHomeUID], IP: o.Status.PodIP,
		Deleting: o.DeletionTimestamp != nil, Counted: o.Spec.RestartPolicy == corev1.RestartPolicyNever,
		Unique: o.Labels[appsv1.StatefulSetPodNameLabel] != "",
	}
	for _, each := range o.Status.Conditions {
		p.Evicted = p.Evicted || each.Type == corev1.DisruptionTarget && slices.Contains(lostNode, each.Reason)
		p.Ready = p.Ready || each.Type == corev1.PodReady && each.Status == corev1.ConditionTrue
	}
	for _, each := range o.Status.ContainerStatuses {
		p.Live = p.Live || each.State.Running != nil
	}
	return p
}

func jobOf(o *batchv1.Job) JobState {
	j := JobState{Namespace: o.Namespace, Name: o.Name, Succeeded: int(o.Status.Succeeded)}
	for _, each := range o.Status.Conditions {
		j.Complete = j.Complete || each.Type == batchv1.JobComplete && each.Status == corev1.ConditionTrue
		j.Failed = j.Failed || each.Type == batchv1.JobFailed && each.Status == corev1.ConditionTrue
	}
	return j
}

func heldBy(o client.Object, all ...[]byte) Held {
	h := Held{Namespace: o.GetNamespace(), Name: o.GetName()}
	for _, value := range all {
		h.add(value)
	}
	return h
}

func (h *Held) add(value []byte) {
	for _, found := range canary.FindAllSubmatch(value, -1) {
		h.Canaries = append(h.Canaries, Canary{string(found[1]), string(found[2]), string(found[3])})
	}
}
