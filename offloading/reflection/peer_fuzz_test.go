package reflection

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

// FuzzRenewal: whatever a provider writes on the tokens it has, they are renewed no earlier
// than was planned, and no later than tokens of the longest life are.
func FuzzRenewal(f *testing.F) {
	for _, written := range []string{"", "2026-11-21T12:00:00Z", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z", "2026-11-21T12:00:00+23:59", "tomorrow"} {
		f.Add(written, int64(0))
		f.Add(written, int64(time.Hour))
	}
	now := time.Date(2026, 11, 21, 11, 30, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, written string, ahead int64) {
		known := now.Add(time.Duration(ahead) % maxTokenAge)
		there := &v1alpha1.ShadowObject{}
		there.Annotations = map[string]string{v1alpha1.AnnotationRenew: written}
		if got := renewalOf(there, known, now); got.Before(known) || got.After(now.Add(maxTokenAge)) {
			t.Fatalf("%q: renewed at %s, planned %s, now %s", written, got, known, now)
		}
	})
}

// shelf are ShadowObjects by name.
type shelf map[string]string

func (s shelf) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	text, found := s[key.Name]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "shadowobjects"}, key.Name)
	}
	obj.(*v1alpha1.ShadowObject).Spec.Object = text
	return nil
}

func (shelf) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

// FuzzJoin: whatever number of parts a consumer names, whatever they say and whichever are
// there, what is put together is what it has the hash of, of a bounded length, and
// otherwise nothing is.
func FuzzJoin(f *testing.F) {
	f.Add(int32(3), "one|two|three", hash("onetwothree"), uint64(7))
	f.Add(int32(3), "one|two|three", hash("onetwothree"), uint64(5)) // the second is missing
	f.Add(int32(2), "one|two|three", hash("onetwothree"), uint64(7)) // it says fewer
	f.Add(int32(1<<30), "a", hash("a"), uint64(1))
	f.Add(int32(-1), "a", "", uint64(1))
	f.Fuzz(func(t *testing.T, number int32, texts, sum string, there uint64) {
		home := v1alpha1.HomeObject{Kind: kindConfigMap, Namespace: "shop", Name: "big"}
		first := &v1alpha1.ShadowObject{}
		first.Name = v1alpha1.ShadowObjectName(home)
		pieces := strings.Split(texts, "|")
		all, whole := shelf{}, ""
		for i, piece := range pieces {
			if there>>(i%64)&1 == 1 {
				all[v1alpha1.ShadowObjectPart(first.Name, i)] = piece
			}
			if i < int(number) {
				whole += piece
			}
		}
		first.Spec = v1alpha1.ShadowObjectSpec{Home: home, Object: pieces[0], Parts: number, Hash: sum}
		joined, err := (&provider{live: all}).join(t.Context(), first)
		switch {
		case err != nil:
			t.Fatal(err)
		case number < 2 && (!joined || first.Spec.Object != pieces[0]):
			t.Fatal("what has no parts is not whole")
		case number >= 2 && joined && (hash(first.Spec.Object) != sum || first.Spec.Object != whole):
			t.Fatalf("put together %q", first.Spec.Object)
		case !joined && first.Spec.Object != pieces[0]:
			t.Fatalf("not whole, and changed to %q", first.Spec.Object)
		case len(first.Spec.Object) > content.MaxWhole+len(texts):
			t.Fatalf("%d bytes", len(first.Spec.Object))
		}
	})
}
