package consumer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// What the status of a pod says whose ShadowPod is gone, deleted by the provider or here.
const (
	reasonRemoved = "RemovedByProvider"
	// reasonEnded, of a refusal: the provider has ended a pod that cannot end by itself.
	reasonEnded    = "EndedAtProvider"
	messageRemoved = "the provider has removed this pod for good"
	reasonUnmapped = "NotOffloaded"
)

// explained is a status with the reason why the pod does not run.
func explained(f facts, status corev1.PodStatus, reason, message string) corev1.PodStatus {
	reason, message = clean(reason, 64), clean(message, 512)
	next := *status.DeepCopy()
	next.Reason, next.Message = reason, message
	if next.Phase == corev1.PodPending || next.Phase == "" {
		next.Phase = corev1.PodPending
		set(&next, corev1.PodReadyToStartContainers, corev1.ConditionFalse, reason, message, f.now)
	}
	unready(&next, reason, message, f.now)
	return next
}

// removed is the last status of a pod whose ShadowPod is gone.
func removed(f facts) *corev1.PodStatus {
	next := *f.pod.Status.DeepCopy()
	next.Phase, next.Reason, next.Message = corev1.PodFailed, reasonRemoved, messageRemoved
	shadow.SetAddresses(&next, nil) // others get them
	if !f.mapped {
		next.Reason, next.Message = reasonUnmapped, "the namespace is not offloaded to "+f.peering+" any more"
	}
	set(&next, corev1.DisruptionTarget, corev1.ConditionTrue, next.Reason, next.Message, f.now)
	unready(&next, "PodFailed", "", f.now)
	return &next
}

func unready(status *corev1.PodStatus, reason, message string, now time.Time) {
	set(status, corev1.PodReady, corev1.ConditionFalse, reason, message, now)
	set(status, corev1.ContainersReady, corev1.ConditionFalse, reason, message, now)
}

// set sets a condition; its time is that of the last change between true and false.
func set(status *corev1.PodStatus, kind corev1.PodConditionType, value corev1.ConditionStatus, reason, message string, now time.Time) {
	c := corev1.PodCondition{
		Type: kind, Status: value, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	i := slices.IndexFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		status.Conditions = append(status.Conditions, c)
		return
	}
	if old := status.Conditions[i]; old.Status == value {
		c.LastTransitionTime = old.LastTransitionTime
	}
	status.Conditions[i] = c
}

// clean is a text of at most so many bytes, as a line that can be shown. What a
// provider says comes through here.
func clean(text string, limit int) string {
	text = strings.ToValidUTF8(text[:min(len(text), 4*limit)], "")
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}

// noted are annotations that the pod is to have: that it was sent without the tokens it expects. They
// come with its status.
func (f facts) noted() map[string]string {
	if f.shadow == nil || f.at.Tokens || shadow.IsBare(f.pod) || len(shadow.Tokens(&f.pod.Spec)) == 0 {
		return nil
	}
	return map[string]string{v1alpha1.AnnotationTokens: "false"}
}

// patchOf changes the status of exactly this pod, and notes something on it; conditions of others are left alone.
func patchOf(pod *corev1.Pod, next corev1.PodStatus, noted map[string]string) (client.Patch, error) {
	before, err := json.Marshal(corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, fmt.Errorf("encoding the pod's status: %w", err)
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID, Annotations: noted}, Status: next})
	if err != nil {
		return nil, fmt.Errorf("encoding the pod's status: %w", err)
	}
	data, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("comparing the pod's status: %w", err)
	}
	return client.RawPatch(types.StrategicMergePatchType, data), nil
}
