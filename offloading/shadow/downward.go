package shadow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// homePrefix begins the annotations that show home's values to the downward API.
const homePrefix = "pelago.dev/home-"

var (
	// subscript is metadata.labels['key'] or metadata.annotations['key'].
	subscript = regexp.MustCompile(`^metadata\.(labels|annotations)\['([^']+)'\]$`)
	// shownKey are the annotations that a ShadowPod may bring for the downward API; the
	// others under homePrefix are made of spec.home.
	shownKey = regexp.MustCompile(`^pelago\.dev/home-(labels|annotations|[0-9a-f]{10})$`)
	// shownPath is how a volume may read one of them.
	shownPath = regexp.MustCompile(`^metadata\.annotations\['pelago\.dev/home-(namespace|name|uid|labels|annotations|[0-9a-f]{10})'\]$`)
)

// showInEnv gives environment variables the values that they would have at home.
func showInEnv(w *walk, path string, env *[]corev1.EnvVar) {
	for i := range *env {
		v := &(*env)[i]
		if v.ValueFrom == nil || v.ValueFrom.FieldRef == nil {
			continue
		}
		field := v.ValueFrom.FieldRef.FieldPath
		at := fmt.Sprintf("%s[%d].valueFrom.fieldRef.fieldPath", path, i)
		switch {
		case field == "status.podIP" || field == "status.podIPs":
		case w.home == nil:
			w.refuse(at, "only status.podIP and status.podIPs are the pod's own; write the value")
		default:
			value, ok := w.homeValue(field)
			if !ok {
				w.refuse(at, fmt.Sprintf("%.80q cannot be shown at a provider; leave it out", field))
				continue
			}
			// A dollar would begin a reference to another variable.
			v.Value, v.ValueFrom = strings.ReplaceAll(value, "$", "$$"), nil
		}
	}
}

// homeValue is what the downward API shows at home, without the pod's own addresses.
func (w *walk) homeValue(field string) (string, bool) {
	if m := subscript.FindStringSubmatch(field); m != nil {
		if m[1] == "labels" {
			return w.home.Labels[m[2]], true
		}
		return w.home.Annotations[m[2]], true
	}
	switch field {
	case "metadata.name":
		return w.home.Name, true
	case "metadata.namespace":
		return w.home.Namespace, true
	case "metadata.uid":
		return string(w.home.UID), true
	case "spec.nodeName":
		return w.at.Node, true
	case "spec.serviceAccountName":
		return w.home.Spec.ServiceAccountName, true
	case "status.hostIP", "status.hostIPs":
		return w.at.Address, true
	}
	return "", false
}

// showInVolume makes a file of the downward API read the annotation that holds home's
// value, so that it follows when home's does.
func showInVolume(w *walk, path string, ref **corev1.ObjectFieldSelector) {
	field := (*ref).FieldPath
	if w.home == nil {
		if !shownPath.MatchString(field) {
			w.refuse(path+".fieldPath", "only annotations "+homePrefix+"* can be shown; leave it out")
		}
		return
	}
	key, value := "", ""
	switch m := subscript.FindStringSubmatch(field); {
	case field == "metadata.name":
		key = v1alpha1.AnnotationHomeName
	case field == "metadata.namespace":
		key = v1alpha1.AnnotationHomeNamespace
	case field == "metadata.uid":
		key = v1alpha1.AnnotationHomeUID
	case field == "metadata.labels":
		key, value = v1alpha1.AnnotationHomeLabels, lines(w.home.Labels)
	case field == "metadata.annotations":
		key, value = v1alpha1.AnnotationHomeAnnotations, lines(w.home.Annotations)
	case m != nil:
		sum := sha256.Sum256([]byte(field))
		key = homePrefix + hex.EncodeToString(sum[:])[:10]
		value, _ = w.homeValue(field)
	default:
		w.refuse(path+".fieldPath", fmt.Sprintf("%.80q cannot be shown at a provider; leave it out", field))
		return
	}
	if shownKey.MatchString(key) {
		w.shown[key] = value
	}
	*ref = &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + key + "']"}
}

// lines writes labels or annotations as the kubelet does into files.
func lines(m map[string]string) string {
	var b strings.Builder
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s=%q", key, m[key])
	}
	return b.String()
}
