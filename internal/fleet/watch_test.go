package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// scheme is made once: that takes long.
var scheme = sync.OnceValue(kubetest.Scheme)

// standing is a session without a network.
func standing() (*session, *mirror, *[]string) {
	gvk := v1alpha1.GroupVersion.WithKind("ResourceOffer")
	m := &mirror{watched: watched{gvk: gvk}, namespace: "ns", pace: newPacer(), objects: map[string]*unstructured.Unstructured{}, version: "1", synced: true}
	var told []string
	s := &session{options: &Options{Clock: clock.RealClock{}}, changed: func(_ *session, u *unstructured.Unstructured) { told = append(told, u.GetName()) }}
	s.reader = reader{mirrors: map[schema.GroupVersionKind]*mirror{gvk: m}, scheme: scheme()}
	return s, m, &told
}

func event(kind, namespace, name, version string) string {
	return `{"type":"` + kind + `","object":{"apiVersion":"pelago.dev/v1alpha1","kind":"ResourceOffer","metadata":{"namespace":"` +
		namespace + `","name":"` + name + `","resourceVersion":"` + version + `"}}}` + "\n"
}

func TestEvents(t *testing.T) {
	cases := []struct {
		reason, stream string
		told           string
		left           int
		version        string
		err            func(error) bool
	}{
		{"added, changed, removed", event("ADDED", "ns", "a", "2") + event("ADDED", "ns", "b", "3") + event("DELETED", "ns", "a", "4"), "a b a", 1, "4", quietEnd},
		{"a bookmark only moves the version", event("BOOKMARK", "", "", "9"), "", 0, "9", quietEnd},
		{"what is elsewhere is not ours", event("ADDED", "kube-system", "a", "2"), "", 0, "2", quietEnd},
		{"cut in the middle", event("ADDED", "ns", "a", "2") + `{"type":"ADD`, "a", 1, "2", quietEnd},
		{"no JSON", "<html>", "", 0, "1", func(err error) bool { return !quietEnd(err) }},
		{"too old to go on", `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`, "", 0, "1", apierrors.IsResourceExpired},
		{"an error that is none", `{"type":"ERROR","object":7}`, "", 0, "1", func(err error) bool { return err != nil }},
		{"too large an event", `{"type":"` + strings.Repeat("x", maxEvent+1), "", 0, "1", func(err error) bool { return errors.Is(err, ErrTooLarge) }},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			s, m, told := standing()
			err := s.events(t.Context(), strings.NewReader(c.stream), m)
			if !c.err(err) || strings.Join(*told, " ") != c.told || len(m.all()) != c.left || m.from() != c.version {
				t.Errorf("told %v, %d left, version %s, %v", *told, len(m.all()), m.from(), err)
			}
		})
	}
}

// endless is a watch whose events never end, with ever new versions.
type endless struct {
	make func(version string) string
	sent int
	left string
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == "" {
		e.sent++
		e.left = e.make(strconv.Itoa(e.sent))
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

// TestEventsArePaced holds that a peer is read no faster than it may cause work, though what it
// sends causes none, or the same again.
func TestEventsArePaced(t *testing.T) {
	for reason, next := range map[string]func(version string) string{
		"bookmarks":           func(v string) string { return event("BOOKMARK", "", "", v) },
		"what is not ours":    func(v string) string { return event("MODIFIED", "kube-system", "a", v) },
		"one object of ours":  func(v string) string { return event("MODIFIED", "ns", "a", v) },
		"what has never been": func(v string) string { return event("DELETED", "ns", "a", v) },
	} {
		t.Run(reason, func(t *testing.T) {
			s, m, _ := standing()
			began := time.Now()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			defer time.AfterFunc(time.Minute, cancel).Stop()
			least := paceBurst + int(paceRate*paceLag.Seconds())
			kept := func(version string) string {
				if version == strconv.Itoa(least+1) { // from here on the peer is kept back, for a second
					time.AfterFunc(time.Second, cancel)
				}
				return next(version)
			}
			if err := s.events(ctx, &endless{make: kept}, m); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			got, _ := strconv.Atoi(m.from())
			if most := least + int(paceRate*time.Since(began).Seconds()) + 2; got < least || got > most {
				t.Errorf("%d events were read, want %d to %d", got, least, most)
			}
		})
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(event("ADDED", "ns", "a", "2")))
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"namespace":"ns","name":"a","labels":{"a":7}},"spec":{"resources":{"cpu":[]}}}}`))
	f.Add([]byte(`{"type":"ADDED","object":null}{"type":"ERROR"}`))
	f.Fuzz(func(t *testing.T, stream []byte) {
		s, m, _ := standing()
		_ = s.events(t.Context(), bytes.NewReader(stream), m)
		for _, u := range m.all() {
			if u.GetNamespace() != "ns" {
				t.Errorf("took an object of %q", u.GetNamespace())
			}
			_ = into(u, &v1alpha1.ResourceOffer{})
		}
		_ = s.reader.List(t.Context(), &v1alpha1.ResourceOfferList{})
	})
}

func TestStatusError(t *testing.T) {
	cases := []struct {
		reason, text string
		code         int
		is           func(error) bool
	}{
		{"a refusal", `{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}`, 403, apierrors.IsForbidden},
		{"a refusal of a proxy", `<html>`, 401, apierrors.IsUnauthorized},
		{"gone", `{}`, 410, apierrors.IsGone},
		{"no such kind", `404 page not found`, 404, apierrors.IsNotFound},
		{"too much to do", `Too many requests, please try again later.`, 429, apierrors.IsTooManyRequests},
		{"anything else", ``, 503, func(err error) bool { return err != nil && !apierrors.IsForbidden(err) }},
	}
	for _, c := range cases {
		if err := statusError([]byte(c.text), c.code); !c.is(err) {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
	if err := statusError([]byte(`{"kind":"Status","code":403,"message":"`+strings.Repeat("x", 5000)+`"}`), 403); len(err.Error()) > 400 {
		t.Error("a peer's message is not bounded")
	}
}

func TestBackoff(t *testing.T) {
	b := backoff{jitter: func() float64 { return 0 }}
	for i, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, retryMax, retryMax} {
		if got := b.next(); got != want {
			t.Errorf("wait %d is %s, want %s", i, got, want)
		}
	}
	b.reset()
	b.jitter = func() float64 { return 0.999 }
	if got := b.next(); got < retryMin*2/3 || got >= retryMin {
		t.Errorf("with jitter %s", got)
	}
}

func TestBody(t *testing.T) {
	ended := 0
	b := &body{ReadCloser: io.NopCloser(strings.NewReader("12345")), ended: func() { ended++ }, left: 3, bounded: true}
	text, err := io.ReadAll(b)
	if string(text) != "123" || !errors.Is(err, ErrTooLarge) {
		t.Errorf("%q, %v", text, err)
	}
	b.Close()
	if ended != 1 {
		t.Error("the end was not told")
	}
}

func TestConnectionMistakes(t *testing.T) {
	good := Connection{Peering: "milan", ServerURL: "https://milan.example:6443", TenantNamespace: "ns", Token: "canary"}
	f := New(Options{Scheme: scheme()})
	cases := []struct {
		reason string
		change func(*Connection)
	}{
		{"plain HTTP", func(c *Connection) { c.ServerURL = "http://milan.example" }},
		{"no host", func(c *Connection) { c.ServerURL = "https://" }},
		{"a user in the address", func(c *Connection) { c.ServerURL = "https://a:b@milan.example" }},
		{"no namespace", func(c *Connection) { c.TenantNamespace = "" }},
		{"an authority that is none", func(c *Connection) { c.CA = []byte("x") }},
		{"a certificate without its key", func(c *Connection) { c.Certificate = []byte("x") }},
		{"a proxy that is none", func(c *Connection) { c.ProxyURL = "://" }},
	}
	for _, c := range cases {
		conn := good
		c.change(&conn)
		if err := f.Set(t.Context(), conn); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
	if err := f.Set(t.Context(), good); err != nil {
		t.Error(err)
	}
}

var _ http.RoundTripper = (*transport)(nil)
