package dataplane

import (
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestRewriteRefused has a rule that looks as ours hold a set that has to go: what cannot be left as it is
// is written anew the next time.
func TestRewriteRefused(t *testing.T) {
	kernel, options, c := alone(t)
	set := func() (writes int64, err error) {
		t.Helper()
		other, err := New(options) // which knows no handles
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err = other.Set(t.Context(), c); err != nil {
			err = other.Set(t.Context(), c)
		}
		return other.writes.Load(), err
	}
	if err := kernel.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	file, err := netns.Copy(options.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := netnstest.OpenPlace(t, "host", file)
	of := &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}
	host.Must(host.Nftables(func(conn *nftables.Conn) {
		old := &nftables.Set{Name: "old", Table: of, KeyType: nftables.TypeIPAddr, ID: 1}
		host.Must(conn.AddSet(old, nil))
		for _, chain := range hostState(c).table.chains {
			if chain.name != "segments" {
				continue
			}
			conn.FlushChain(&nftables.Chain{Name: chain.name, Table: of})
			for _, r := range chain.rules {
				_, payload := load(true, true)
				conn.AddRule(&nftables.Rule{
					Table: of, Chain: &nftables.Chain{Name: chain.name, Table: of}, UserData: userdata.AppendString(nil, userdata.TypeComment, r.print()),
					Exprs: append(isFamily(true), payload, &expr.Lookup{SourceRegister: register, SetName: old.Name, SetID: old.ID}),
				})
			}
		}
	}))
	if writes, err := set(); err != nil || writes == 0 {
		t.Errorf("%v, %d writes", err, writes)
	}
	if writes, err := set(); err != nil || writes != 0 {
		t.Errorf("then: %v, %d writes", err, writes)
	}
}
