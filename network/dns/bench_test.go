package dns

import (
	"context"
	"fmt"
	"testing"

	wire "github.com/miekg/dns"
)

// BenchmarkRespond is what a question costs beside asking the cluster's DNS.
func BenchmarkRespond(b *testing.B) {
	packet := packed(b, ask("db.shop.svc.cluster.local.", wire.TypeA, edns(1232, false)))
	records := records(b, []string{"db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.7"})
	r := responder{clients: known, exchange: func(_ context.Context, question *wire.Msg) (*wire.Msg, error) {
		m := (&wire.Msg{}).SetReply(question)
		m.Answer = append(m.Answer, wire.Copy(records[0]))
		return m, nil
	}}
	for b.Loop() {
		if _, what := r.respond(context.Background(), packet, true); what != renamed {
			b.Fatal(resultNames[what])
		}
	}
}

// indexOf is one with some namespaces of one tenant.
func indexOf(n int) *Index {
	x := NewIndex("milan-1")
	for i := range n {
		x.SetNamespace(space(fmt.Sprintf("s%d-rome", i), "rome", fmt.Sprint("s", i), 0, false))
	}
	return x
}

// TestIndexOfMany holds that a namespace costs as much beside thousands as beside few: an agent that starts
// is told of one after the other.
func TestIndexOfMany(t *testing.T) {
	cost := func(n int) float64 {
		x, again := indexOf(n), space("again-rome", "rome", "again", 0, false)
		return testing.AllocsPerRun(10, func() { x.SetNamespace(again); x.DeleteNamespace(again.Name) })
	}
	if few, all := cost(10), cost(5000); all > few {
		t.Errorf("a namespace allocates %v times beside 5,000, and %v times beside 10", all, few)
	}
}

// BenchmarkIndex is what an agent takes in that starts.
func BenchmarkIndex(b *testing.B) {
	for b.Loop() {
		if x := indexOf(5000); len(x.namespaces) != 5000 {
			b.Fatal(len(x.namespaces))
		}
	}
}
