package reflection

import (
	"testing"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestPlanted: when a ShadowObject goes that its provider made itself does not tell whether there is such an
// object at home, or a rule about it.
func TestPlanted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod("other")
	w.create(pullSecret(w.home, "present", "s3cret"))
	w.create(pullSecret(w.home, "denied", "s3cret"))
	kept := get(w, w.home, "denied", pullSecret("", "", ""))
	kept.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
	w.update(kept)
	names := []string{"absent", "present", "denied"}
	for _, name := range names {
		w.create(&v1alpha1.ShadowObject{ObjectMeta: objectMeta(w.key(name).Namespace, w.key(name).Name),
			Spec: v1alpha1.ShadowObjectSpec{Home: w.of(name), Object: text(jsonType, jsonKey, login("x"))}})
	}
	began, gone := w.clock.Now(), map[string]time.Duration{}
	for range 2 * int(grace/(10*time.Second)) {
		for _, name := range names {
			if w.send(name); w.shadow(name) == nil && gone[name] == 0 {
				gone[name] = w.clock.Now().Sub(began).Truncate(10 * time.Second)
			}
		}
		w.clock.Step(10*time.Second - time.Duration(len(names))*readEvery)
	}
	for _, name := range names {
		if gone[name] != gone["present"] || gone[name] < grace {
			t.Errorf("%s goes after %s, and present after %s", name, gone[name], gone["present"])
		}
	}
}
