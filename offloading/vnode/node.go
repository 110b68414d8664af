package vnode

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// annotationOffered remembers which labels of the node came with the offer, so that they
// can go with it.
const annotationOffered = "pelago.dev/offered-labels"

// maxLabels bounds the labels taken of an offer.
const maxLabels = 64

// maxVersion bounds the text of a version that is read.
const maxVersion = 64

// providerID names the machine behind a node, for controllers of clouds.
func providerID(clusterID, request string) string { return "pelago://" + clusterID + "/" + request }

// describe brings a node's metadata and spec to what they should be. What others have
// put there stays.
func describe(node *corev1.Node, f facts) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	offered := offeredLabels(f.offer.Spec.Labels)
	before := strings.Fields(node.Annotations[annotationOffered])
	for _, key := range before {
		if _, still := offered[key]; !still && mayLabel(key) {
			delete(node.Labels, key)
		}
	}
	for key, value := range offered {
		if _, taken := node.Labels[key]; taken && !slices.Contains(before, key) && node.ResourceVersion != "" {
			delete(offered, key) // somebody here has labelled the node so
			continue
		}
		node.Labels[key] = value
	}
	node.Annotations[annotationOffered] = strings.Join(slices.Sorted(maps.Keys(offered)), " ")
	maps.Copy(node.Labels, fixedLabels(f))
	if node.Spec.ProviderID == "" {
		node.Spec.ProviderID = providerID(f.peering.Spec.ClusterID, f.request.Name)
	}
	ours := corev1.Taint{Key: v1alpha1.TaintVirtualNode, Effect: corev1.TaintEffectNoExecute}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&ours) }) {
		node.Spec.Taints = append(node.Spec.Taints, ours)
	}
}

// fixedLabels are those every virtual node has.
func fixedLabels(f facts) map[string]string {
	labels := map[string]string{
		v1alpha1.LabelManagedBy:          component,
		v1alpha1.LabelType:               v1alpha1.TypeVirtualNode,
		v1alpha1.LabelRemoteClusterID:    f.peering.Spec.ClusterID,
		v1alpha1.LabelPeering:            f.peeringName(),
		v1alpha1.LabelRequest:            f.request.Name,
		"type":                           "virtual-kubelet",
		corev1.LabelHostname:             hostname(f.name()),
		corev1.LabelNodeExcludeBalancers: "true",
	}
	if arch, os := platform(f); arch != "" {
		labels[corev1.LabelArchStable], labels[corev1.LabelOSStable] = arch, os
	}
	return labels
}

// hostname is the name as a label can hold it.
func hostname(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return name[:54] + "-" + hex.EncodeToString(sum[:4])
}

// platform is the architecture and operating system of most nodes behind the offer; an
// offer that has nothing now says nothing, and what the node says already holds.
func platform(f facts) (arch, os string) {
	counts := map[[2]string]int64{}
	for _, s := range f.offer.Spec.Shapes {
		if s.Nodes > 0 && s.Architecture != "" && s.OperatingSystem != "" &&
			len(validation.IsValidLabelValue(s.Architecture))+len(validation.IsValidLabelValue(s.OperatingSystem)) == 0 {
			counts[[2]string{s.Architecture, s.OperatingSystem}] += int64(s.Nodes)
		}
	}
	if len(counts) == 0 {
		if f.node != nil {
			return f.node.Labels[corev1.LabelArchStable], f.node.Labels[corev1.LabelOSStable]
		}
		return "", ""
	}
	most := slices.MaxFunc(slices.Collect(maps.Keys(counts)), func(a, b [2]string) int {
		return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(b[0], a[0]), cmp.Compare(b[1], a[1]))
	})
	return most[0], most[1]
}

// offeredLabels are the labels of an offer that a node may have.
func offeredLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if len(out) < maxLabels && mayLabel(key) && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(labels[key])) == 0 {
			out[key] = labels[key]
		}
	}
	return out
}

// mayLabel says whether a provider may choose the value of a label: not of those that
// mean something to Kubernetes or to Pelago, but for where the cluster is.
func mayLabel(key string) bool {
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return key != "type"
	}
	if domain == "topology.kubernetes.io" {
		return true
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io", v1alpha1.GroupVersion.Group} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return false
		}
	}
	return true
}

// size is what a node has: what is free for the request and what its pods there use, no
// more than was asked for.
func size(f facts) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, list := range []v1alpha1.ResourceList{f.offer.Spec.Resources, f.offer.Spec.Used} {
		for name, q := range list {
			total := sum[corev1.ResourceName(name)]
			total.Format = q.Format
			total.Add(q)
			sum[corev1.ResourceName(name)] = total
		}
	}
	for name, asked := range f.request.Spec.Resources {
		if has, ok := sum[corev1.ResourceName(name)]; ok && has.Cmp(asked) > 0 {
			sum[corev1.ResourceName(name)] = asked.DeepCopy()
		}
	}
	return sum
}

// state brings a node's status to what it should be; a condition keeps its times while
// it does not change.
func state(node *corev1.Node, f facts) {
	s := &node.Status
	s.Capacity, s.Allocatable = size(f), size(f)
	s.Addresses = nil // no Hostname: API servers prefer it by default, and nobody resolves it
	if _, err := netip.ParseAddr(f.address); err == nil {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: f.address})
	}
	s.DaemonEndpoints.KubeletEndpoint.Port = f.port
	arch, os := platform(f)
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: f.peering.Spec.ClusterID, SystemUUID: f.peering.Spec.ClusterID,
		Architecture: arch, OperatingSystem: os, OSImage: "Pelago " + f.version,
		ContainerRuntimeVersion: "pelago://" + strings.TrimPrefix(f.version, "v"), KubeletVersion: kubeletVersion(f),
	}
	s.DeclaredFeatures = declaredFeatures(f)
	if ready := readiness(f); ready != nil {
		setCondition(s, *ready, f)
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		setCondition(s, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "NoPressure", Message: "the provider offers what it has free"}, f)
	}
	setCondition(s, corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "ProviderNetwork", Message: "pods have the provider's network"}, f)
}

func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition, f facts) {
	c.LastHeartbeatTime, c.LastTransitionTime = metav1.NewTime(f.now), metav1.NewTime(f.now)
	for i := range s.Conditions {
		old := &s.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

// kubeletVersion is the provider's version of Kubernetes, as far as it says one, marked
// as ours; else home's.
func kubeletVersion(f facts) string {
	v := cmp.Or(release(said(f)), release(f.kubernetes), version.MustParseSemantic("0.0.0"))
	return fmt.Sprintf("v%d.%d.%d+pelago", v.Major(), v.Minor(), v.Patch())
}

// said is what the provider says of its version of Kubernetes.
func said(f facts) string {
	if f.peering.Status.Remote == nil {
		return ""
	}
	return f.peering.Status.Remote.KubernetesVersion
}

// release reads a version of Kubernetes, nil if it is none.
func release(text string) *version.Version {
	if len(text) > maxVersion {
		return nil
	}
	v, err := version.ParseSemantic(text)
	if err != nil {
		return nil
	}
	return v
}

// declaredSince is the release from which on nodes declare features, and have those of features by default.
var declaredSince = version.MajorMinor(1, 36)

// features are those that Kubernetes asks of a node, by its status, before it places or changes pods that need them, and that travel:
// restartPolicyRules by which all containers restart, and resizes of the pod as a whole and of init containers. A provider that
// has turned one off refuses what needs it.
var features = []string{"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}

// declaredFeatures are what the node declares. An API server at home that does not know the field would drop it, each time
// that it is written.
func declaredFeatures(f facts) []string {
	for _, text := range []string{said(f), f.kubernetes} {
		if v := release(text); v == nil || v.LessThan(declaredSince) {
			return nil
		}
	}
	return slices.Clone(features)
}
