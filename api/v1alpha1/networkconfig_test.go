package v1alpha1

import (
	"net/netip"
	"testing"
)

func TestViewOf(t *testing.T) {
	views := []NetworkView{
		{Real: "what", View: "ever"}, {Real: "10.0.0.0/8", View: "fd00::/8"}, {Real: "10.42.0.0/16", View: "10.81.0.0/17"},
		{Real: "10.42.0.0/16", View: "10.81.0.0/16"}, {Real: "10.44.16.0/20", View: "10.255.240.0/20"},
		{Real: "10.50.0.0/24", View: "10.50.0.0/24"}, {Real: "fd42::/48", View: "fd81:1:2::/48"},
	}
	for real, want := range map[string]string{
		"10.42.3.7": "10.81.3.7", "10.44.16.1": "10.255.240.1", "10.44.31.255": "10.255.255.255", "10.50.0.9": "10.50.0.9",
		"fd42::1:2": "fd81:1:2::1:2", "10.43.0.1": "", "fd43::1": "", "::ffff:10.42.3.7": "",
	} {
		got, ok := ViewOf(views, netip.MustParseAddr(real))
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%s is seen as %s (%t), want %q", real, got, ok, want)
		}
	}
}
