package hollow

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ranges(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestPoolGivesTheUpperHalf(t *testing.T) {
	for _, c := range []struct {
		reason string
		ranges []netip.Prefix
		n      int
		want   string
		claim  string
	}{
		{"the default range", ranges("10.42.0.0/16"), 1, "[10.42.128.1]", "10.42.128.1"},
		{"far into it", ranges("10.42.0.0/16"), 300, "[10.42.129.44]", "10.42.129.44"},
		{"both families", ranges("10.42.0.0/16", "fd42::/48"), 2, "[10.42.128.2 fd42:0:0:8000::2]", "10.42.128.2"},
		{"IPv6 alone", ranges("fd42::/64"), 1, "[fd42::8000:0:0:1]", "fd42::8000:0:0:1"},
	} {
		p, err := newPool(c.ranges)
		if err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		var text []string
		for _, a := range p.addresses(c.n) {
			text = append(text, a.String())
		}
		if got := "[" + strings.Join(text, " ") + "]"; got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
		if got := p.claim(c.claim); got != c.n {
			t.Errorf("%s: %s has the number %d, want %d", c.reason, c.claim, got, c.n)
		}
	}
}

func TestPoolGivesAnAddressOnce(t *testing.T) {
	p, err := newPool(ranges("10.42.0.0/28")) // 8 in the upper half, of which 6 are for pods
	if err != nil {
		t.Fatal(err)
	}
	if n := p.claim("10.42.0.10"); n != 2 { // of a pod that ran before
		t.Fatalf("it has the number %d", n)
	}
	var got []int
	for range 5 {
		n, err := p.take()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	if d := cmp.Diff([]int{1, 3, 4, 5, 6}, got); d != "" {
		t.Errorf("numbers given out (-want +got):\n%s", d)
	}
	if _, err := p.take(); err == nil || !strings.Contains(err.Error(), "larger podRanges") {
		t.Errorf("when all are taken: %v", err)
	}
	p.release(4)
	if n, err := p.take(); n != 4 || err != nil {
		t.Errorf("after one was given back: %d, %v", n, err)
	}
}

func TestPoolDoesNotClaimWhatIsNotItsOwn(t *testing.T) {
	p, err := newPool(ranges("10.42.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"", "10.42.0.7", "10.42.128.0", "10.43.0.1", "127.0.0.1", "fd42::1", "x"} {
		if n := p.claim(address); n != 0 {
			t.Errorf("%q has the number %d", address, n)
		}
	}
	p.release(0)
	if _, err := newPool(nil); err == nil {
		t.Error("a pool without ranges was made")
	}
	if _, err := newPool(ranges("10.42.0.0/32")); err == nil || !strings.Contains(err.Error(), "too small") {
		t.Errorf("a range of one address: %v", err)
	}
}
