package content

import (
	"net/netip"
	"testing"
)

func TestEndpointSlice(t *testing.T) {
	text := func(address string) string {
		return `{"content":{"service":"web","type":"IPv4","ports":[{"name":"web","port":80}],"endpoints":[{"address":"` + address + `","ready":true}]}}`
	}
	testSlice := func(rules Rules, cases []decoding) {
		for _, c := range cases {
			if o, wrong := Kinds["EndpointSlice"].Decode(c.text, rules); wrong != c.wrong && (c.wrong == "" || o != nil) {
				t.Errorf("%s: %q", c.reason, wrong)
			}
		}
	}
	testSlice(Rules{}, []decoding{{"no range is known, so none passes", text("10.1.0.7"), "refused"}})
	testSlice(Rules{Ranges: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}, []decoding{
		{"inside", text("10.1.0.7"), ""},
		{"outside", text("10.2.0.7"), "refused"},
		{"the machine itself (CVE-2021-25740)", text("127.0.0.1"), "refused"},
		{"the cloud's metadata", text("169.254.169.254"), "refused"},
		{"another notation", text("::ffff:10.1.0.7"), "refused"},
		{"a name", text("kubernetes.default"), "refused"},
		{"of no Service", `{"content":{"type":"IPv4"}}`, "refused"},
		{"by name", `{"content":{"service":"web","type":"FQDN"}}`, "refused"},
		{"on a node", `{"content":{"service":"web","type":"IPv4","endpoints":[{"address":"10.1.0.7","nodeName":"x"}]}}`, "refused"},
	})
}
