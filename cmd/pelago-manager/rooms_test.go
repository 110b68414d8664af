package main

import (
	"testing"

	"github.com/pelago-dev/pelago/offloading/provider"
	"github.com/pelago-dev/pelago/offloading/reflection"
)

// TestDrainers: a tenant that ends loses what runs and what was made for that.
func TestDrainers(t *testing.T) {
	all := drainers(nil, nil)
	if len(all) != 2 {
		t.Fatalf("%d drainers", len(all))
	}
	if _, runs := all[0].(provider.Drainer); !runs {
		t.Errorf("%T is first", all[0])
	}
	if _, needs := all[1].(reflection.Drainer); !needs {
		t.Errorf("%T is second", all[1])
	}
}
