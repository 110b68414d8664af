package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// object is one of a name that is in no mirror.
func object(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(name)
	return u
}

// TestShares holds that a peer may fill what is free, that it cannot take another's part, and
// that all of them end at twice the budget.
func TestShares(t *testing.T) {
	b := &budget{most: 400 << 20}
	hog, calm, third := b.join(), b.join(), b.join()
	leaving := b.join()
	leaving.leave()
	add := func(s *share, mega int, few, want bool) *unstructured.Unstructured {
		t.Helper()
		u := object("x")
		if err := s.swap(nil, u, mega<<20, 0, few); errors.Is(err, ErrTooLarge) == want || want && err != nil {
			t.Errorf("%d MiB more than %d of %d: %v", mega, s.kept>>20, b.kept>>20, err)
		}
		return u
	}
	add(calm, 50, false, true)
	add(hog, 300, false, true)
	large := add(hog, 50, false, true)
	add(hog, 1, false, false)
	add(hog, 4, true, true) // what there is little of
	add(hog, 1, true, false)
	add(calm, 80, false, true) // in its part
	add(calm, 10, false, false)
	if err := hog.swap(large, object("less"), 49<<20, 0, false); err != nil {
		t.Errorf("it may not keep less: %v", err)
	}
	if err := hog.swap(nil, object("none"), 1<<20, 0, false); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "133 MiB") {
		t.Errorf("no part is told: %v", err)
	}
	add(third, 133, false, true)
	b.most = 300 << 20 // as if many had come
	add(third, 1, true, false)

	twice := object("twice")
	before := b.kept
	calm.keep(twice, 10, false)
	calm.keep(twice, 10, false)
	calm.drop(twice, nil)
	if b.kept != before+10 {
		t.Errorf("what is kept twice counts %d", b.kept-before)
	}
	if calm.drop(twice, twice); b.kept != before {
		t.Errorf("what is kept no more counts %d", b.kept-before)
	}
}

// crowdedAt is a session of a peer that shows so many ShadowPods.
func crowdedAt(t testing.TB, b *share, pods int) (*session, *mirror) {
	t.Helper()
	s, m := crowdedSession(pods)
	m.of(b, nil)
	return s, m
}

// TestUsualPodsFit holds that of a few providers with thousands of pods all are kept, and take
// no more memory than they are said to weigh, by which there is room for 20,000.
func TestUsualPodsFit(t *testing.T) {
	b := &budget{most: defaultKept}
	pods, total := []int{5000, 1000, 1000}, 7000
	var shares []*share
	for range pods {
		shares = append(shares, b.join())
	}
	var mirrors []*mirror
	var sessions []*session
	for i, n := range pods {
		s, m := crowdedAt(t, shares[i], n)
		sessions, mirrors = append(sessions, s), append(mirrors, m)
	}
	heap := live(t, func() any {
		for i, s := range sessions {
			if err := s.list(t.Context(), mirrors[i]); err != nil || mirrors[i].leftOut() != nil || len(mirrors[i].all()) != pods[i] {
				t.Errorf("%d of %d pods: %v, left out %v", len(mirrors[i].all()), pods[i], err, mirrors[i].leftOut())
			}
		}
		return mirrors
	})
	runtime.KeepAlive(sessions) // what they serve was there before
	t.Logf("%d bytes live, %d weighed for each", heap/total, b.kept/total)
	if heap > b.kept+total*200 { // their names in two maps
		t.Errorf("%d bytes are live, %d weighed", heap, b.kept)
	}
	if room := defaultKept / (b.kept / total); room < 20_000 {
		t.Errorf("there is room for %d", room)
	}
}

// TestHogTakesNoPart holds that a provider that shows all it can is cut, and its neighbour
// has all that is in its part.
func TestHogTakesNoPart(t *testing.T) {
	b := &budget{most: 32 << 20}
	hog, calm := b.join(), b.join()
	s, m := crowdedAt(t, hog, 1)
	page := func(n int) string {
		var items []string
		for i := range 3 {
			items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"ns","name":"a%d-%d"},"status":{"pod":"%s"}}`, n, i, strings.Repeat("x", 1<<20)))
		}
		return fmt.Sprintf(`{"metadata":{"resourceVersion":"1","continue":"%d"},"items":[%s]}`, n+1, strings.Join(items, ","))
	}
	var pages crowded
	for n := range 20 {
		pages = append(pages, page(n))
	}
	s.stream = &http.Client{Transport: pages}
	if err := s.list(t.Context(), m); err != nil || !errors.Is(m.leftOut(), ErrTooLarge) || !m.full() || b.kept > b.most || b.kept < b.most*3/4 {
		t.Fatalf("%v, left out %v, %d MiB kept", err, m.leftOut(), b.kept>>20)
	}
	s2, m2 := crowdedAt(t, calm, 1500)
	if err := s2.list(t.Context(), m2); err != nil || m2.leftOut() != nil || len(m2.all()) != 1500 {
		t.Errorf("its neighbour: %v, left out %v", err, m2.leftOut())
	}
	// An event is beyond as well; and where nothing may be left out the peer is too large.
	big := strings.Replace(event("ADDED", "ns", "more", "2"), `"metadata":{`, `"spec":"`+strings.Repeat("x", 1<<20)+`","metadata":{`, 1)
	if err := s.events(t.Context(), strings.NewReader(big+big), m); !quietEnd(err) || m.get("more") != nil {
		t.Errorf("an event of it: %v", err)
	}
	hog.few = fewKept // of other kinds
	m.bounds.Beyond = false
	if err := s.events(t.Context(), strings.NewReader(big), m); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an event of it: %v", err)
	}
	for _, m := range []*mirror{m, m2} {
		if m.release(); m.share.kept != 0 || len(m.share.held) != 0 {
			t.Errorf("%d bytes are still kept", m.share.kept)
		}
	}
	if err := s2.list(t.Context(), m2); err != nil || b.kept != 0 {
		t.Errorf("a session that is over keeps %d bytes, %v", b.kept, err)
	}
}

// TestKeptOnce holds that what a peer's sessions both show counts once, from the first list of
// the new one to the end of the old one; and that events and lists leave nothing counted.
func TestKeptOnce(t *testing.T) {
	f := New(Options{Scheme: scheme()})
	old, m := crowdedSession(500)
	p := newPeer(f, peering, old)
	sh := p.share
	check := func(when string, n int) {
		t.Helper()
		if heavy := n * weigh(m.all()["7b0d9c36-6d0f-4b0e-9a58-000000000007"].Object); sh.kept > heavy+heavy/50 || sh.kept < heavy-heavy/50 || len(sh.held) != n || f.budget.kept != sh.kept {
			t.Errorf("%s: %d bytes of %d objects are kept, want %d of %d", when, sh.kept, len(sh.held), heavy, n)
		}
	}
	for range 2 {
		if err := old.list(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		check("after a list", 500)
	}
	next, m2 := crowdedSession(500)
	old.changed = func(*session, *unstructured.Unstructured) {}
	next.of(sh, old)
	if err := next.list(t.Context(), m2); err != nil {
		t.Fatal(err)
	}
	check("while there are two sessions", 500)
	other := strings.Replace(event("MODIFIED", "ns", "7b0d9c36-6d0f-4b0e-9a58-000000000001", "9999"), "ResourceOffer", "ShadowPod", 1)
	if err := old.events(t.Context(), strings.NewReader(other), m); !quietEnd(err) {
		t.Fatal(err)
	}
	check("when one knows a change before the other", 501)
	m2.adopt(m)
	m.release()
	m = m2
	check("after the old one", 500)
	gone := strings.Replace(other, "MODIFIED", "DELETED", 1)
	if err := next.events(t.Context(), strings.NewReader(gone), m2); !quietEnd(err) {
		t.Fatal(err)
	}
	check("after a deletion", 499)
	third, m3 := crowdedSession(1)
	m3.synced = false
	third.of(sh, next)
	m3.adopt(m2)
	check("taken over without a list", 499)
	m2.release()
	check("and then the old one ends", 499)
	if m3.release(); sh.kept != 0 || len(sh.held) != 0 || f.budget.kept != 0 {
		t.Errorf("%d bytes are still kept", sh.kept)
	}
	third.list(t.Context(), m3)
	m3.synced = false
	m3.adopt(m2)
	if f.budget.kept != 0 {
		t.Errorf("%d bytes are kept of what is over", f.budget.kept)
	}
}

// TestFailedListKeepsNothing holds that what a list had before it failed counts no more.
func TestFailedListKeepsNothing(t *testing.T) {
	b := &budget{most: 1 << 30}
	s, m := crowdedAt(t, b.join(), 300)
	pages := s.stream.Transport.(crowded)
	pages[2] = "<html>"
	if err := s.list(t.Context(), m); err == nil || b.kept != 0 {
		t.Errorf("%d bytes are kept after %v", b.kept, err)
	}
}

// TestPeersShare holds that a peer has a part until it is removed.
func TestPeersShare(t *testing.T) {
	f := New(Options{Scheme: scheme()})
	if err := f.Watch(&v1alpha1.ShadowPod{}); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"milan", "oslo", "milan"} { // a new credential at last
		if err := f.Set(t.Context(), Connection{Peering: name, ServerURL: "https://192.0.2.1:1", Token: fmt.Sprint(i), TenantNamespace: "ns"}); err != nil {
			t.Fatal(err)
		}
		for _, m := range f.peers[name].session().reader.mirrors {
			if m.share == nil || m.share != f.peers[name].share {
				t.Errorf("what %s has counts for nobody", name)
			}
		}
	}
	if f.budget.peers != 2 || f.budget.most < 1<<20 {
		t.Errorf("%d peers share %d bytes", f.budget.peers, f.budget.most)
	}
	f.Remove("oslo")
	f.Remove("oslo")
	if f.budget.peers != 1 {
		t.Errorf("%d peers are left", f.budget.peers)
	}
}
