package cli

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// FuzzInvitation: an invitation that is accepted is a line that a shell takes apart into
// the same words, and a token is not in what is said against one that is not.
func FuzzInvitation(f *testing.F) {
	const id = "8f14e45f-ceea-4e7a-9c1d-0d5f3b6a1c2e"
	hash, token := strings.Repeat("2c", 32), strings.Repeat("t", 43)
	f.Add("milan", id, "https://milan.example:30443", hash, token, "")
	f.Add("milan; rm -rf", id, "https://a$(b)", hash, token, "")
	f.Add("kube-system", "x", "http://[::1]:0/", "", "-", "")
	f.Add("milan", id, "https://user@[::1]:65536?a#b", hash, token+"\n", "")
	f.Add("milan", id, "milan.example:7100 [2001:db8::1]:7100", hash, token[1:]+"A", publicKey)
	f.Add("milan", id, "$(b):7100 milan:+7", hash, token, publicKey[1:]+"=")
	plain := regexp.MustCompile(`^[A-Za-z0-9 .:/\[\]_+=-]+$`)
	f.Fuzz(func(t *testing.T, name, id, address, hash, token, key string) {
		i := invitation{Name: name, ClusterID: id, AuthURL: address, CASHA256: hash, Token: token}
		if key != "" { // in band the addresses are of the tunnel
			if i.AuthURL, i.Tunnel = "", (v1alpha1.InBand{PublicKey: key, Endpoints: strings.Fields(address)}); len(i.Tunnel.Endpoints) > mostLined {
				return // the line has the first ones
			}
		}
		if err := i.check(); err != nil {
			if len(token) > 20 && strings.Contains(err.Error(), token) && !strings.Contains(name+id+address+hash+key, token) {
				t.Fatalf("the token is in %v", err)
			}
			return
		}
		if i.inBand() && len(i.Tunnel.Endpoints) == 0 {
			if i.complete() == nil {
				t.Fatalf("a tunnel that is nowhere is complete: %+v", i)
			}
			return
		}
		if i.complete() != nil || !plain.MatchString(i.line()) {
			t.Fatalf("a shell acts upon %q", i.line())
		}
		c := &cobra.Command{Use: "peer", Run: func(_ *cobra.Command, args []string) {}}
		back := invitation{}
		c.Flags().StringVar(&back.ClusterID, "cluster-id", "", "")
		c.Flags().StringVar(&back.AuthURL, "auth-url", "", "")
		c.Flags().StringVar(&back.Tunnel.PublicKey, "tunnel-key", "", "")
		c.Flags().StringArrayVar(&back.Tunnel.Endpoints, "tunnel-endpoint", nil, "")
		c.Flags().StringVar(&back.CASHA256, "ca-sha256", "", "")
		c.Flags().StringVar(&back.Token, "token", "", "")
		if err := c.ParseFlags(strings.Fields(i.line())[2:]); err != nil || len(c.Flags().Args()) != 1 {
			t.Fatalf("%q is read as %q, %v", i.line(), c.Flags().Args(), err)
		}
		if back.Name = c.Flags().Arg(0); !reflect.DeepEqual(back, i) {
			t.Fatalf("%q comes back as %+v", i.line(), back)
		}
	})
}
