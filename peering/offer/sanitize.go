package offer

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/api/wire"
)

// Bounds of a peer's offer.
const (
	maxOfferBytes = 128 << 10
	maxDepth      = 16
	maxText       = 253
	maxTimeout    = 24 * time.Hour
	maxNodes      = 1_000_000
)

var (
	decimal  = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,6})?$`)
	currency = regexp.MustCompile(`^[A-Z]{3}$`)
)

// received is a peer's offer after it was checked.
type received struct {
	// spec is what is stored at home: the peer's, unknown fields and all, without the
	// labels that nobody may give us.
	spec      map[string]any
	resources amounts
	used      amounts
	expires   time.Time
}

// usable says whether there is an offer to speak of: what is in use counts, as a virtual
// node that is full is still one.
func (r *received) usable() bool { return r.resources.plus(r.used).usable() }

// sanitize checks what a peer offers. The error names the field; nothing of the offer
// is used then. The peer's object is not changed.
func sanitize(peers map[string]any) (received, error) {
	original, ok := peers["spec"].(map[string]any)
	if !ok {
		return received{}, fmt.Errorf("spec: missing")
	}
	if depth(original, 0) > maxDepth {
		return received{}, fmt.Errorf("spec: nested more than %d deep", maxDepth)
	}
	if text, err := json.Marshal(original); err != nil || len(text) > maxOfferBytes {
		return received{}, fmt.Errorf("spec: larger than %d bytes", maxOfferBytes)
	}
	spec := runtime.DeepCopyJSON(original)
	r := received{spec: spec}
	var err error
	if r.resources, err = takeList("spec.resources", spec["resources"]); err != nil {
		return received{}, err
	}
	if spec["used"] != nil {
		if r.used, err = takeList("spec.used", spec["used"]); err != nil {
			return received{}, err
		}
	}
	if r.expires, err = takeTime("spec.expires", spec["expires"]); err != nil {
		return received{}, err
	}
	for _, check := range []func(map[string]any) error{checkShapes, checkClasses, checkPrice, checkTimeout, stripLabels} {
		if err := check(spec); err != nil {
			return received{}, err
		}
	}
	return r, nil
}

// depth measures nesting, and stops where it is too deep already.
func depth(v any, at int) int {
	if at > maxDepth {
		return at
	}
	deepest := at
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			deepest = max(deepest, depth(inner, at+1))
		}
	case []any:
		for _, inner := range v {
			deepest = max(deepest, depth(inner, at+1))
		}
	}
	return deepest
}

// takeList reads amounts by resource name.
func takeList(field string, v any) (amounts, error) {
	raw, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: not a list of resources", field)
	}
	list := v1alpha1.ResourceList{}
	for name, value := range raw {
		q, err := takeQuantity(value)
		if err != nil {
			return nil, fmt.Errorf("%s[%.80q]: %w", field, name, err)
		}
		list[name] = q
	}
	if err := checkList(field, list); err != nil {
		return nil, err
	}
	// A node has what is free and what is in use together, and an API server finds out by
	// thousandths whether a number is whole: it would not take any other status of that node.
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; whole(name) && q.CmpInt64(maxWhole) >= 0 {
			return nil, fmt.Errorf("%s[%s]: more than a node can have", field, name)
		}
	}
	return amountsOf(list), nil
}

// takeQuantity reads one quantity without the risks of the general parser.
func takeQuantity(v any) (resource.Quantity, error) {
	switch v := v.(type) {
	case int64:
		return *resource.NewQuantity(v, resource.DecimalSI), nil
	case string:
		return wire.Quantity(v)
	}
	return resource.Quantity{}, fmt.Errorf("not a quantity like 4, 250m or 8Gi")
}

func takeTime(field string, v any) (time.Time, error) {
	text, _ := v.(string)
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || len(text) > 64 {
		return time.Time{}, fmt.Errorf("%s: not a time like 2026-01-02T15:04:05Z", field)
	}
	return t, nil
}

// items reads a list that may be absent.
func items(field string, v any, most int) ([]map[string]any, error) {
	if v == nil {
		return nil, nil
	}
	raw, ok := v.([]any)
	if !ok || len(raw) > most {
		return nil, fmt.Errorf("%s: not a list of at most %d", field, most)
	}
	out := make([]map[string]any, len(raw))
	for i := range raw {
		if out[i], ok = raw[i].(map[string]any); !ok {
			return nil, fmt.Errorf("%s[%d]: not an object", field, i)
		}
	}
	return out, nil
}

func checkShapes(spec map[string]any) error {
	shapes, err := items("spec.shapes", spec["shapes"], maxShapes)
	if err != nil {
		return err
	}
	for i, shape := range shapes {
		field := fmt.Sprintf("spec.shapes[%d]", i)
		for _, key := range []string{"architecture", "operatingSystem"} {
			text, ok := shape[key].(string)
			if !ok || len(validation.IsValidLabelValue(text)) > 0 {
				return fmt.Errorf("%s.%s: not a label value", field, key)
			}
		}
		if n, ok := shape["nodes"].(int64); !ok || n < 0 || n > maxNodes {
			return fmt.Errorf("%s.nodes: not a number from 0 to %d", field, maxNodes)
		}
		if shape["largest"] == nil {
			continue
		}
		largest, ok := shape["largest"].([]any)
		if !ok || len(largest) > maxLargest {
			return fmt.Errorf("%s.largest: not a list of at most %d", field, maxLargest)
		}
		for j, list := range largest {
			if _, err := takeList(fmt.Sprintf("%s.largest[%d]", field, j), list); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkClasses(spec map[string]any) error {
	for _, key := range []string{"storageClasses", "ingressClasses", "loadBalancerClasses"} {
		classes, err := items("spec."+key, spec[key], maxClasses)
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for i, class := range classes {
			name, _ := class["name"].(string)
			valid := len(validation.IsDNS1123Subdomain(name)) == 0 || len(validation.IsQualifiedName(name)) == 0
			if !valid || len(name) > maxText || seen[name] {
				return fmt.Errorf("spec.%s[%d].name: not the name of a class, or there twice", key, i)
			}
			seen[name] = true
			if _, ok := class["default"].(bool); class["default"] != nil && !ok {
				return fmt.Errorf("spec.%s[%d].default: neither true nor false", key, i)
			}
		}
	}
	return nil
}

func checkPrice(spec map[string]any) error {
	if spec["price"] == nil {
		return nil
	}
	price, _ := spec["price"].(map[string]any)
	amount, _ := price["amount"].(string)
	unit, _ := price["currency"].(string)
	period, _ := price["period"].(string)
	if !decimal.MatchString(amount) || !currency.MatchString(unit) || period != "Hour" && period != "Month" {
		return fmt.Errorf("spec.price: not an amount, a currency and a period")
	}
	return nil
}

func checkTimeout(spec map[string]any) error {
	if spec["schedulingTimeout"] == nil {
		return nil
	}
	text, _ := spec["schedulingTimeout"].(string)
	if d, err := time.ParseDuration(text); err != nil || len(text) > 64 || d < 0 || d > maxTimeout {
		return fmt.Errorf("spec.schedulingTimeout: not a duration from 0s to %s", maxTimeout)
	}
	return nil
}

// stripLabels drops the labels that a peer may not give: those that mean something
// to Kubernetes or to Pelago, but for region and zone, and what is no label.
func stripLabels(spec map[string]any) error {
	if spec["labels"] == nil {
		return nil
	}
	labels, ok := spec["labels"].(map[string]any)
	if !ok {
		return fmt.Errorf("spec.labels: not labels")
	}
	for key, v := range labels {
		text, isText := v.(string)
		if !isText || !mayLabel(key) || len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(text)) > 0 {
			delete(labels, key)
		}
	}
	if len(labels) > maxResources {
		return fmt.Errorf("spec.labels: %d labels, at most %d", len(labels), maxResources)
	}
	return nil
}

func mayLabel(key string) bool {
	if key == corev1.LabelTopologyRegion || key == corev1.LabelTopologyZone {
		return true
	}
	domain, _, prefixed := strings.Cut(key, "/")
	if !prefixed {
		return true
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io", v1alpha1.GroupVersion.Group} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return false
		}
	}
	return true
}
