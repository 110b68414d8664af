package network

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestPathKind holds what an API server refuses of NetworkPaths, whoever writes them.
func TestPathKind(t *testing.T) {
	server := kubetest.Server(t)
	c, namespace := server.Client(t), server.Namespace(t)
	many := func(text string) (all []string) {
		for range 17 {
			all = append(all, text)
		}
		return all
	}
	for reason, spoil := range map[string]func(o *v1alpha1.NetworkPath){
		"":                             func(*v1alpha1.NetworkPath) {},
		"metadata.name: must be":       func(o *v1alpha1.NetworkPath) { o.Name = "milan" },
		"16 digits of 0 to 9":          func(o *v1alpha1.NetworkPath) { o.Name += "0" },
		"spec.prefixes: Invalid value": func(o *v1alpha1.NetworkPath) { o.Spec.Prefixes = []string{} },
		"spec.prefixes: Too many":      func(o *v1alpha1.NetworkPath) { o.Spec.Prefixes = many("10.0.0.0/16") },
		"spec.prefixes[0]: Too long":   func(o *v1alpha1.NetworkPath) { o.Spec.Prefixes[0] = strings.Repeat("1", 44) },
		"spec.publicKey":               func(o *v1alpha1.NetworkPath) { o.Spec.PublicKey = "key" },
		"spec.endpoints: Too many":     func(o *v1alpha1.NetworkPath) { o.Spec.Endpoints = many("192.0.2.7:7100") },
		"spec.endpoints[0]: Too long":  func(o *v1alpha1.NetworkPath) { o.Spec.Endpoints[0] = strings.Repeat("h", 262) },
	} {
		o := &v1alpha1.NetworkPath{ObjectMeta: at(namespace, "5f3a9c1185a5c5e9"), Spec: v1alpha1.NetworkPathSpec{
			Prefixes: []string{"10.255.0.0/16"}, PublicKey: "2GlzWkYMlWgI6ZSPmPZNAD6bUi0PsTBzNEaGSyLVVzw=", Endpoints: []string{"192.0.2.7:7100"},
			Until: metav1.NewTime(time.Now().Add(time.Hour)),
		}}
		spoil(o)
		err := c.Create(ctx, o)
		if reason == "" && err != nil {
			t.Errorf("what is well is refused: %v", err)
		}
		if reason != "" && (!apierrors.IsInvalid(err) || !strings.Contains(fmt.Sprint(err), reason)) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// TestDirectPathsOfPeerings: who only uses this cluster is a Tenant, and that is where it is said.
func TestDirectPathsOfPeerings(t *testing.T) {
	server := kubetest.Server(t)
	c := server.Client(t)
	for _, test := range []struct {
		spec v1alpha1.PeeringSpec
		ok   bool
	}{
		{v1alpha1.PeeringSpec{Provide: &v1alpha1.Provide{Tenant: "rome"}, DirectPaths: true}, false},
		{v1alpha1.PeeringSpec{Provide: &v1alpha1.Provide{Tenant: "rome"}}, true},
		{v1alpha1.PeeringSpec{Consume: &v1alpha1.Consume{AuthURL: "https://milan.example:30443", CASHA256: strings.Repeat("0", 64), TokenSecret: "t"}, DirectPaths: true}, true},
	} {
		test.spec.ClusterID = string(uuid.NewUUID())
		p := &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: server.Name(t, "milan")}, Spec: test.spec}
		err := c.Create(ctx, p)
		if err == nil {
			t.Cleanup(func() { c.Delete(ctx, p) })
		}
		if test.ok != (err == nil) || !test.ok && !strings.Contains(err.Error(), "spec.directPaths: is for a provider") {
			t.Errorf("%+v: %v", test.spec, err)
		}
	}
}
