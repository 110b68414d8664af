package shadow

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// defaultMode is that of the files in a volume.
const defaultMode = 0o644

// sparse takes out of a pod what the API server of its provider puts in by itself: each
// ShadowPod crosses the link several times. Only constants of the API are taken out, which
// all builds leave to it; imagePullPolicy stays, as its default is that of the image with
// which the pod began, and not of the one it has now.
func sparse(spec *corev1.PodSpec) {
	clearValue(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	clearValue(&spec.DNSPolicy, corev1.DNSClusterFirst)
	clearPointer(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	clearPointer(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if spec.SecurityContext != nil && reflect.ValueOf(*spec.SecurityContext).IsZero() {
		spec.SecurityContext = nil
	}
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			sparseContainer(&list[i])
		}
	}
	for i := range spec.Volumes {
		sparseVolume(&spec.Volumes[i])
	}
}

func sparseContainer(c *corev1.Container) {
	clearValue(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	clearValue(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		clearValue(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		clearValue(&p.TimeoutSeconds, 1)
		clearValue(&p.PeriodSeconds, 10)
		clearValue(&p.SuccessThreshold, 1)
		clearValue(&p.FailureThreshold, 3)
		if p.HTTPGet != nil {
			clearValue(&p.HTTPGet.Scheme, corev1.URISchemeHTTP)
		}
	}
}

func sparseVolume(v *corev1.Volume) {
	switch {
	case v.ConfigMap != nil:
		clearPointer(&v.ConfigMap.DefaultMode, defaultMode)
	case v.Secret != nil:
		clearPointer(&v.Secret.DefaultMode, defaultMode)
	case v.DownwardAPI != nil:
		clearPointer(&v.DownwardAPI.DefaultMode, defaultMode)
	case v.Projected != nil:
		clearPointer(&v.Projected.DefaultMode, defaultMode)
	}
}

// clearValue leaves a field out that has its default.
func clearValue[T comparable](field *T, otherwise T) {
	if *field == otherwise {
		*field = *new(T)
	}
}

// clearPointer is clearValue of an optional field.
func clearPointer[T comparable](field **T, otherwise T) {
	if ptr.Equal(*field, &otherwise) {
		*field = nil
	}
}
