package kube

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// keep leaves of a ConfigMap its name.
func keep(o any) (any, error) {
	if m, ok := o.(*corev1.ConfigMap); ok {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, ResourceVersion: m.ResourceVersion}}, nil
	}
	return o, nil
}

// held are the names of the ConfigMaps that a cache holds.
func held(t *testing.T, c *Cache) (names []string) {
	t.Helper()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		names = append(names, m.Name)
		if m.Data != nil {
			t.Errorf("%s is held whole", m.Name)
		}
	}
	slices.Sort(names)
	return names
}

// TestCache holds that a cache holds what was asked for and no more, follows it, and ends.
func TestCache(t *testing.T) {
	server := kubetest.Server(t)
	here, there := server.Namespace(t), server.Namespace(t)
	c := newClient(t, server.Config)
	create := func(namespace, name, label string) *corev1.ConfigMap {
		t.Helper()
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"kube-test": label}}, Data: map[string]string{"much": "text"}}
		if err := c.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	create(here, "a", "x")
	create(here, "b", "y")
	create(there, "c", "x")
	of := func(q Query) *Cache {
		t.Helper()
		q.Of = &corev1.ConfigMap{}
		made, err := c.Cache(keep, q, Query{Of: &coordinationv1.Lease{}, Namespace: here})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	x := of(Query{Labels: labels.SelectorFromSet(labels.Set{"kube-test": "x"})})
	named := of(Query{Namespace: here, Fields: fields.OneTermEqualSelector(metav1.ObjectNameField, "b")})
	var mu sync.Mutex
	told := map[string]int{}
	tell := func(verb string) func(any) {
		return func(o any) {
			mu.Lock()
			defer mu.Unlock()
			if m, ok := o.(*corev1.ConfigMap); ok {
				told[verb+" "+m.Name]++
			}
		}
	}
	changed := tell("changed")
	if err := x.Listen(&corev1.ConfigMap{}, toolscache.ResourceEventHandlerFuncs{
		AddFunc: tell("new"), UpdateFunc: func(_, o any) { changed(o) }, DeleteFunc: tell("gone"),
	}); err != nil {
		t.Fatal(err)
	}
	if x.Synced() {
		t.Error("it holds all before it runs")
	}
	stop := run(t, t.Context(), x)
	run(t, t.Context(), named)
	if !x.Wait(t.Context()) || !named.Wait(t.Context()) || !x.Synced() {
		t.Fatal("they do not get to hold all")
	}
	if got := fmt.Sprint(held(t, x), held(t, named)); got != "[a c] [b]" {
		t.Errorf("held is %s", got)
	}
	a := create(there, "d", "x")
	if err := c.Patch(t.Context(), a, types.MergePatchType, []byte(`{"data":{"less":"text"}}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Patch(t.Context(), a, types.MergePatchType, []byte(`{"metadata":{"labels":{"kube-test":"y"}}}`)); err != nil {
		t.Fatal(err)
	}
	until(t, "all of that was told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return maps.Equal(told, map[string]int{"new a": 1, "new c": 1, "new d": 1, "changed d": 1, "gone d": 1})
	})
	if got := fmt.Sprint(held(t, x)); got != "[a c]" {
		t.Errorf("held is %s", got)
	}
	stop()
	if got := fmt.Sprint(held(t, x)); got != "[a c]" {
		t.Errorf("at its end %s is held", got)
	}
	never := of(Query{})
	run(t, t.Context(), never)()
	if err := never.List(context.Background(), &corev1.ConfigMapList{}); never.Wait(context.Background()) || err == nil {
		t.Errorf("what has ended before it was read is waited for: %v", err)
	}
	if err := x.List(t.Context(), &v1alpha1.NetworkConfigList{}); err == nil || !strings.Contains(err.Error(), "not followed") {
		t.Errorf("a kind that is not followed: %v", err)
	}
	if err := x.Listen(&corev1.Node{}, toolscache.ResourceEventHandlerFuncs{}); err == nil {
		t.Error("a kind that is not followed can be listened to")
	}
	if _, err := c.Cache(keep, Query{Of: &corev1.Node{}}, Query{Of: &corev1.Node{}}); err == nil {
		t.Error("a kind can be followed twice")
	}
}

// TestCacheTold holds that a cache is waited for until its listeners know what it holds.
func TestCacheTold(t *testing.T) {
	server := kubetest.Server(t)
	client, namespace := newClient(t, server.Config), server.Namespace(t)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: map[string]string{"kube-test": "t"}}}
	if err := client.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c, err := client.Cache(keep, Query{Of: m, Namespace: namespace, Labels: labels.SelectorFromSet(m.Labels)})
	if err != nil {
		t.Fatal(err)
	}
	begun, goOn := make(chan bool), make(chan bool)
	if err := c.Listen(m, toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { close(begun); <-goOn }}); err != nil {
		t.Fatal(err)
	}
	run(t, t.Context(), c)
	<-begun
	until(t, "all is held", c.Synced)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if c.Wait(short) {
		t.Error("it is not waited for who listens")
	}
	close(goOn)
	if !c.Wait(t.Context()) {
		t.Error("who listens knows all, and it is waited for more")
	}
}

// TestCacheFaults holds that a cache comes to hold what there is after a server was away, has forgotten what
// was, or has refused, and that it says so.
func TestCacheFaults(t *testing.T) {
	f, api := newFront(t, (*httptest.Server).Start)
	c, namespace := newClient(t, api.Config), api.Namespace(t)
	made, err := newClient(t, &rest.Config{Host: f.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON}}).Cache(keep, Query{Of: &corev1.ConfigMap{}, Namespace: namespace, Labels: labels.SelectorFromSet(labels.Set{"kube-test": "f"})})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var lines []string
	said := func(what string) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, what) })
	}
	logger := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, prefix+args)
	}, funcr.Options{})
	refuse := func(code int, reason, message string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
			return true
		}
	}
	f.now(refuse(http.StatusForbidden, "Forbidden", "configmaps is forbidden: the agent may not list them"))
	run(t, klog.NewContext(t.Context(), logger), made)
	until(t, "a missing right is told of", func() bool { return said("the agent may not list them") && said("ConfigMap") })
	if made.Synced() {
		t.Error("who may read nothing holds all")
	}
	change := func(name string) {
		t.Helper()
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"kube-test": "f"}}}
		if err := c.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	change("a")
	f.now(nil)
	if !made.Wait(t.Context()) {
		t.Fatal("it does not get to hold all")
	}
	gone := func(w http.ResponseWriter, r *http.Request) bool { panic(http.ErrAbortHandler) }
	f.now(gone)
	before := f.watches()
	change("b")
	f.now(nil)
	until(t, "what has come while the server was away is held", func() bool { return slices.Equal(held(t, made), []string{"a", "b"}) })
	// What it watched before may end later than it watches again, and what it holds may come before it does.
	until(t, "it watches, by one request", func() bool {
		now := f.watches()
		return len(now) == 1 && !slices.Contains(before, now[0])
	})
	f.mu.Lock()
	f.asked = nil
	f.mu.Unlock()
	f.judging(gone) // which what goes on already does not notice
	if n := f.say(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","message":"too old resource version","code":410}}`); n != 1 {
		t.Errorf("%d watches were told that they are too old", n)
	}
	change("c")
	until(t, "it asks again", func() bool { return len(f.heads(http.MethodGet, "Accept")) > 0 })
	f.now(nil)
	until(t, "what has come meanwhile is held", func() bool { return slices.Equal(held(t, made), []string{"a", "b", "c"}) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.asked[0].URL.Query(); q.Get("watch") != "" && q.Get("sendInitialEvents") == "" {
		t.Errorf("after it was told that its version is too old it asks what came after that: %v", q)
	}
}
