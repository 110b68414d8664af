package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func TestAway(t *testing.T) {
	maps := schema.GroupResource{Resource: "configmaps"}
	for _, c := range []struct {
		reason string
		err    error
		anew   bool
	}{
		{"nobody listens", &url.Error{Op: "Get", URL: "https://192.0.2.1", Err: io.EOF}, true},
		{"the API server is starting", apierrors.NewServiceUnavailable("no"), true},
		{"its database is slow", apierrors.NewTimeoutError("no", 1), true},
		{"it has too much to do", apierrors.NewTooManyRequests("no", 1), true},
		{"its database is away", apierrors.NewInternalError(io.EOF), true},
		{"another replica leads", errors.New("running the controllers: " + leaseLost), true},
		{"no right", apierrors.NewForbidden(maps, "pelago-config", nil), false},
		{"no settings", apierrors.NewNotFound(maps, "pelago-config"), false},
		{"bad settings", errors.New("cluster.name: is missing"), false},
	} {
		var why *interruption
		if got := errors.As(fmt.Errorf("reading: %w", away(c.err)), &why); got != c.anew {
			t.Errorf("%s: anew is %v", c.reason, got)
		}
		if lost := c.reason == "another replica leads"; c.anew && (why.pause() == 0) != lost {
			t.Errorf("%s: it waits %s", c.reason, why.pause())
		}
		if !errors.Is(away(c.err), c.err) {
			t.Errorf("%s: the cause is lost", c.reason)
		}
	}
}

// A replica whose Lease another one takes begins anew.
func TestLeaseLost(t *testing.T) {
	server := kubetest.Server(t)
	c, namespace := configured(t, server)
	worked := make(chan bool, 1)
	test := room{name: "lease", leads: true, register: func(mgr ctrl.Manager, _ deps) error {
		return mgr.Add(work(func() { worked <- true }))
	}}
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, server.Config, settings{
			rooms: []room{test}, address: "127.0.0.1:0", namespace: namespace, registry: prometheus.NewRegistry(),
		})
	}()
	select {
	case <-worked:
	case <-time.After(waitLimit):
		t.Fatal("the room did not get to work")
	}
	lease, other := &coordinationv1.Lease{}, "another"
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.ManagerLease}, lease); err != nil {
		t.Fatal(err)
	}
	base := lease.DeepCopy()
	lease.Spec.HolderIdentity = &other
	if err := c.Patch(t.Context(), lease, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	var why *interruption
	select {
	case err := <-done:
		if !errors.As(err, &why) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(waitLimit):
		t.Fatal("it works on though another one leads")
	}
}
