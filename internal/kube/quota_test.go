package kube

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestUncounted(t *testing.T) {
	of := schema.GroupResource{Group: "pelago.dev", Resource: "shadowobjects"}
	unknown := errors.New("status unknown for quota: pelago-objects, resources: count/shadowobjects.pelago.dev")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{apierrors.NewForbidden(of, "x", unknown), true},
		{fmt.Errorf("writing it: %w", apierrors.NewForbidden(of, "x", unknown)), true},
		{apierrors.NewForbidden(of, "x", errors.New("exceeded quota: pelago-objects")), false},
		{apierrors.NewNotFound(of, "status unknown for quota"), false},
		{unknown, false},
		{nil, false},
	} {
		if got := Uncounted(c.err); got != c.want {
			t.Errorf("%v: %t", c.err, got)
		}
	}
}
