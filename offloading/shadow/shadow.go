// Package shadow says what becomes of a pod that is created here and runs there: one
// table of every field of a pod (table.go), by which the consumer forges a ShadowPod of
// a home pod (Forge), by which the provider makes the pod of a ShadowPod whoever wrote it
// (Make), and the way back of the pod's status (Report, Status). It is pure: it reads and
// writes nothing, has no clock, and never trusts what came from the other side.
package shadow

import (
	"fmt"
	"strings"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// ManagedBy is the value of the label pelago.dev/managed-by on pods made of ShadowPods.
const ManagedBy = "pelago-manager"

// LongestGrace is the most that a pod gets to end: a tenant may write what it likes into
// terminationGracePeriodSeconds, and who drains a node, or the tenant, wants it gone.
const LongestGrace = 10 * time.Minute

// Bounds of what a ShadowPod may hold; those of its schema are checked again.
const (
	maxPodText     = 65536
	maxStatusText  = 131072
	maxMetadata    = 128
	maxAnnotation  = 16384
	maxAnnotations = 32768 // all together, with their keys
	maxDepth       = 32
	maxItems       = 1024
	maxContainers  = 64
	maxVolumes     = 128
	maxRefusal     = 1024
	maxReasonCount = 16
	maxTokens      = 16
)

// Place is where a home pod was bound: the virtual node, the ResourceRequest behind it
// and the node's InternalIP, empty if unknown.
type Place struct {
	Node, Request, Address string
	// Tokens of home travel with the pod.
	Tokens bool
}

// Ground is where a ShadowPod's pod is to run: the mapped namespace, the tenant's name
// and the Pod Security Standard it is held to; baseline if empty.
type Ground struct {
	Namespace, Tenant string
	PodSecurity       v1alpha1.PodSecurity
}

// Refusal is the error of Forge and Make: why a pod like this does not run at a
// provider. Each reason names a field and the remedy.
type Refusal struct{ Reasons []string }

// Error lists the reasons in at most 1 KiB.
func (r *Refusal) Error() string {
	var b strings.Builder
	for i, reason := range r.Reasons {
		more := fmt.Sprintf("; and %d more", len(r.Reasons)-i)
		if i > 0 && b.Len()+len(reason)+2+len(more) > maxRefusal {
			b.WriteString(more)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(cut(reason, maxRefusal-len(more)))
	}
	return b.String()
}

// cut shortens a text to at most n bytes, never within a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const dots = "..."
	for n -= len(dots); n > 0 && text[n]&0xC0 == 0x80; n-- {
	}
	return text[:max(n, 0)] + dots
}
