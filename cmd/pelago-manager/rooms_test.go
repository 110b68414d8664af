package main

import (
	"testing"

	"github.com/pelago-dev/pelago/offloading/provider"
)

// TestDrainers: a tenant that ends loses what runs and what was made for that.
func TestDrainers(t *testing.T) {
	o := tenantOptions(deps{}, nil, nil)
	if len(o.Drainers) != 1 || o.Empty == nil {
		t.Fatalf("%d drainers; namespaces that are kept are emptied: %t", len(o.Drainers), o.Empty != nil)
	}
	if _, runs := o.Drainers[0].(provider.Drainer); !runs {
		t.Errorf("%T is first", o.Drainers[0])
	}
}
