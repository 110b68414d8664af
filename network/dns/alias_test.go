package dns

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	wire "github.com/miekg/dns"
)

// chase makes the answer to a question as the DNS of a cluster does that follows aliases itself.
func chase(t testing.TB, zone []string, question *wire.Msg) *wire.Msg {
	m := answerBy(t, zone, question)
	name := question.Question[0].Name
	for range 8 {
		for _, rr := range records(t, zone) {
			if c, ok := rr.(*wire.CNAME); ok && strings.EqualFold(c.Hdr.Name, name) && question.Question[0].Qtype != wire.TypeCNAME {
				next := question.Copy()
				next.Question[0].Name = c.Target
				far := answerBy(t, zone, next)
				m.Answer, m.Rcode, m.Ns = append(append(m.Answer, rr), far.Answer...), far.Rcode, far.Ns
				name = c.Target
			}
		}
	}
	return m
}

// TestAliases holds that what home's Services of the type ExternalName mean is home's too, and that the
// provider's things of the same name get to nobody.
func TestAliases(t *testing.T) {
	zone := []string{
		"db.shop-rome.svc.cluster.local. 5 IN CNAME base.example.org.", "base.example.org. 60 IN A 192.0.2.7",
		"cache.shop-rome.svc.cluster.local. 5 IN CNAME redis.store.svc.cluster.local.",
		"redis.store-rome.svc.cluster.local. 5 IN A 10.96.0.8", "redis.store.svc.cluster.local. 5 IN A 10.96.0.66", // the provider's own
		"far.shop-rome.svc.cluster.local. 5 IN CNAME redis.bank.svc.cluster.local.", "redis.bank.svc.cluster.local. 5 IN A 10.96.0.67",
		"none.shop-rome.svc.cluster.local. 5 IN CNAME none.store.svc.cluster.local.",
		"two.shop-rome.svc.cluster.local. 5 IN CNAME cache.shop.svc.cluster.local.",
		"round.shop-rome.svc.cluster.local. 5 IN CNAME round.shop.svc.cluster.local.",
		"theirs.shop-rome.svc.cluster.local. 5 IN CNAME api.milan.internal.", "api.milan.internal. 5 IN A 10.96.0.1",
	}
	client := Client{Tenant: "rome", Namespaces: map[string]string{"shop": "shop-rome", "store": "store-rome"}}
	for _, c := range []struct {
		reason, name, provider string
		kind                   uint16
		code, asked            int
		want                   []string
	}{
		{reason: "a name of the world", name: "db.shop.svc.cluster.local.", asked: 1,
			want: []string{"db.shop.svc.cluster.local. 5 IN CNAME base.example.org.", "base.example.org. 60 IN A 192.0.2.7"}},
		{reason: "a Service of another namespace of home's", name: "Cache.shop.svc.cluster.local.", asked: 2,
			want: []string{"Cache.shop.svc.cluster.local. 5 IN CNAME redis.store.svc.cluster.local.", "redis.store.svc.cluster.local. 5 IN A 10.96.0.8"}},
		{reason: "the alias itself", name: "cache.shop.svc.cluster.local.", kind: wire.TypeCNAME, asked: 1,
			want: []string{"cache.shop.svc.cluster.local. 5 IN CNAME redis.store.svc.cluster.local."}},
		{reason: "one that is not offloaded", name: "far.shop.svc.cluster.local.", asked: 1, code: wire.RcodeNameError},
		{reason: "one that is not there", name: "none.shop.svc.cluster.local.", asked: 2, code: wire.RcodeNameError,
			want: []string{"none.shop.svc.cluster.local. 5 IN CNAME none.store.svc.cluster.local."}},
		{reason: "an alias of an alias", name: "two.shop.svc.cluster.local.", asked: 3,
			want: []string{"two.shop.svc.cluster.local. 5 IN CNAME cache.shop.svc.cluster.local.", "cache.shop.svc.cluster.local. 5 IN CNAME redis.store.svc.cluster.local.", "redis.store.svc.cluster.local. 5 IN A 10.96.0.8"}},
		{reason: "one of the provider's own, of another domain than home's", name: "theirs.shop.svc.cluster.local.", provider: "milan.internal", asked: 1, code: wire.RcodeNameError},
	} {
		t.Run(c.reason, func(t *testing.T) {
			var asked []string
			r := responder{clients: func() (Client, bool) { return client, true }, exchange: func(_ context.Context, q *wire.Msg) (*wire.Msg, error) {
				asked = append(asked, q.Question[0].Name)
				return chase(t, zone, q), nil
			}}
			if c.provider != "" {
				r.provider = c.provider
				r.exchange = func(_ context.Context, q *wire.Msg) (*wire.Msg, error) {
					asked = append(asked, q.Question[0].Name)
					q = q.Copy()
					q.Question[0].Name = strings.Replace(q.Question[0].Name, c.provider, "cluster.local", 1)
					m := chase(t, zone, q)
					for _, rr := range m.Answer {
						if strings.HasSuffix(rr.Header().Name, "cluster.local.") {
							rr.Header().Name = strings.Replace(rr.Header().Name, "cluster.local", c.provider, 1)
						}
					}
					return m, nil
				}
			}
			kind := c.kind
			if kind == 0 {
				kind = wire.TypeA
			}
			b, _ := r.respond(context.Background(), packed(t, ask(c.name, kind)), true)
			m := unpacked(t, b)
			var want []string
			if len(c.want) > 0 {
				want = lines(records(t, c.want))
			}
			if diff := cmp.Diff(want, lines(m.Answer)); diff != "" || m.Rcode != c.code || len(asked) != c.asked {
				t.Errorf("code %d, want %d, asked for %v: %s", m.Rcode, c.code, asked, diff)
			}
		})
	}
	t.Run("round and round", func(t *testing.T) {
		var asked int
		r := responder{clients: func() (Client, bool) { return client, true }, exchange: func(_ context.Context, q *wire.Msg) (*wire.Msg, error) {
			asked++
			return chase(t, zone, q), nil
		}}
		b, _ := r.respond(context.Background(), packed(t, ask("round.shop.svc.cluster.local.", wire.TypeA)), true)
		if m := unpacked(t, b); m.Rcode != wire.RcodeServerFailure || asked != maxAliases+1 {
			t.Errorf("asked %d times: %s", asked, m)
		}
	})
}
