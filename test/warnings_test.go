package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// warnings holds that what keeps a pod from starting there is an event here, one per
// reason, which explain shows too; and that a pod which starts as it should has none.
func warnings(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.sleeper("fine"))
	unpulled := s.sleeper("unpulled")
	unpulled.Spec.Containers[0].Image, unpulled.Spec.Containers[0].ImagePullPolicy = "127.0.0.1:1/nothing:1", corev1.PullAlways
	s.create(t, unpulled)
	unmounted := s.sleeper("unmounted")
	unmounted.Spec.Volumes = []corev1.Volume{{Name: "settings", VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}}}}}
	unmounted.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "settings", MountPath: "/etc/settings"}}
	s.create(t, unmounted)
	s.running(t, "fine")

	for name, words := range map[string]string{"unpulled": "milan: Failed: Failed to pull image", "unmounted": "milan: FailedMount: "} {
		s.eventually(t, offloadLimit, name+" has an event that says why", func() error {
			events, err := s.said(t, name)
			if err == nil && !slices.ContainsFunc(events, func(e corev1.Event) bool { return strings.HasPrefix(e.Message, words) }) {
				err = fmt.Errorf("it has %s", messages(events))
			}
			return err
		})
		if text := c.Pelago(t, "rome", "explain", "pod", name, "-n", s.name); !strings.Contains(strings.Join(strings.Fields(text), " "), words) {
			t.Errorf("explain pod %s lacks %q:\n%s", name, words, text)
		}
	}
	for _, name := range []string{"unpulled", "unmounted"} {
		events, err := s.said(t, name)
		if err != nil {
			t.Fatal(err)
		}
		reasons := map[string]int{}
		for _, e := range events {
			if e.Reason != v1alpha1.ReasonProviderWarning {
				continue
			}
			_, rest, _ := strings.Cut(e.Message, ": ")
			reason, _, _ := strings.Cut(rest, ": ")
			if reasons[reason]++; reasons[reason] > 1 {
				t.Errorf("%s has more than one event of %s: %s", name, reason, messages(events))
			}
		}
	}
	if events, err := s.said(t, "fine"); err != nil || len(events) > 0 {
		t.Errorf("a pod that starts has %s, %v", messages(events), err)
	}
}

// said are the events of Pelago about a pod.
func (s shop) said(t *testing.T, pod string) ([]corev1.Event, error) {
	t.Helper()
	var list corev1.EventList
	err := s.Clients[s.cluster].List(t.Context(), &list, client.InNamespace(s.name), client.MatchingFields{"involvedObject.name": pod})
	return slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
		return !strings.HasPrefix(e.ReportingController, "pelago") && !strings.HasPrefix(e.Source.Component, "pelago")
	}), err
}

func messages(events []corev1.Event) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprintf("%s %q", e.Reason, e.Message))
	}
	return "[" + strings.Join(all, ", ") + "]"
}
