package addon

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFlannelConflist(t *testing.T) {
	const v4 = "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.1.1/24\n"
	const v6 = "FLANNEL_IPV6_NETWORK=fd42::/48\nFLANNEL_IPV6_SUBNET=fd42:0:0:1::1/64\n"
	const rest = "FLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	tests := []struct {
		reason, file string
		want         string
		wantErr      string
	}{
		{reason: "IPv4 only", file: v4 + rest, want: bridgeJSON("false", "1450", `[[{"subnet":"10.42.1.0/24"}]]`, `[{"dst":"10.42.0.0/16"}]`)},
		{reason: "IPv6 only", file: v6 + rest, want: bridgeJSON("false", "1450", `[[{"subnet":"fd42:0:0:1::/64"}]]`, `[{"dst":"fd42::/48"}]`)},
		{
			reason: "both families, in the order of the file's families", file: v6 + v4 + rest,
			want: bridgeJSON("false", "1450", `[[{"subnet":"10.42.1.0/24"}],[{"subnet":"fd42:0:0:1::/64"}]]`, `[{"dst":"10.42.0.0/16"},{"dst":"fd42::/48"}]`),
		},
		{reason: "the plugin masquerades where flannel does not", file: v4 + "FLANNEL_MTU=8950\nFLANNEL_IPMASQ=false\n", want: bridgeJSON("true", "8950", `[[{"subnet":"10.42.1.0/24"}]]`, `[{"dst":"10.42.0.0/16"}]`)},
		{reason: "lines that are not ours do no harm", file: "# x\n\nOTHER=1\n" + v4 + rest, want: bridgeJSON("false", "1450", `[[{"subnet":"10.42.1.0/24"}]]`, `[{"dst":"10.42.0.0/16"}]`)},
		{reason: "empty", wantErr: "neither FLANNEL_SUBNET nor FLANNEL_IPV6_SUBNET"},
		{reason: "half written", file: v4, wantErr: `FLANNEL_MTU ""`},
		{reason: "no word on masquerading", file: v4 + "FLANNEL_MTU=1450\n", wantErr: `FLANNEL_IPMASQ ""`},
		{reason: "MTU too small for IPv4", file: v4 + "FLANNEL_MTU=20\nFLANNEL_IPMASQ=true\n", wantErr: `FLANNEL_MTU "20"`},
		{reason: "families mixed up", file: "FLANNEL_NETWORK=fd42::/48\nFLANNEL_SUBNET=fd42::1/64\n" + rest, wantErr: `FLANNEL_NETWORK "fd42::/48"`},
		{reason: "a subnet without its network", file: "FLANNEL_SUBNET=10.42.1.1/24\n" + rest, wantErr: `FLANNEL_NETWORK ""`},
		{reason: "not a subnet", file: "FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=\"},{\"\n" + rest, wantErr: "FLANNEL_SUBNET"},
		{reason: "too large", file: v4 + rest + strings.Repeat("#", maxSubnetFile), wantErr: "more than 4096"},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			got, err := FlannelConflist([]byte(tt.file))
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var have, want any
			if err := json.Unmarshal(got, &have); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func bridgeJSON(masquerade, mtu, ranges, routes string) string {
	omitted := ""
	if masquerade == "true" {
		omitted = `"ipMasq":true,`
	}
	return `{"cniVersion":"0.4.0","name":"cbr0","plugins":[
		{"type":"bridge","bridge":"cni0","isDefaultGateway":true,"hairpinMode":true,` + omitted + `"mtu":` + mtu + `,
		 "ipam":{"type":"host-local","ranges":` + ranges + `,"routes":` + routes + `}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`
}
