package dns

import (
	"context"
	"slices"
	"strings"
	"testing"

	wire "github.com/miekg/dns"
)

// allowed fails if an answer for rome names something of the provider's.
func allowed(t *testing.T, m *wire.Msg) {
	t.Helper()
	for _, rr := range slices.Concat(m.Answer, m.Ns, m.Extra) {
		if soa, ok := rr.(*wire.SOA); ok && strings.HasPrefix(soa.Ns, "ns.dns.") && soa.Serial == 1 {
			continue // ours
		}
		for _, name := range names(rr) {
			rest, ours := below(*name, "cluster.local.")
			if !ours || strings.EqualFold(*name, m.Question[0].Name) {
				continue
			}
			if n := len(rest); n < 2 || !strings.EqualFold(rest[n-1], "svc") || rome.Namespaces[rest[n-2]] == "" {
				t.Errorf("%q gets through: %s", *name, m)
			}
		}
	}
}

// FuzzQuestion is about packets of clients.
func FuzzQuestion(f *testing.F) {
	for _, m := range []*wire.Msg{
		ask("db.shop.svc.cluster.local.", wire.TypeA), ask("many.shop.svc.cluster.local.", wire.TypeA, edns(1400, true)),
		ask("7.0.96.10.in-addr.arpa.", wire.TypePTR), ask(".", wire.TypeANY), ask("kubernetes.default.svc.cluster.local.", wire.TypeA),
	} {
		f.Add(packed(f, m), true)
	}
	f.Add([]byte{0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xc0, 12, 0, 1, 0, 1}, false)
	zone := append(many(300), "db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.7", "7.0.96.10.in-addr.arpa. 5 IN PTR api.bank.svc.cluster.local.")
	f.Fuzz(func(t *testing.T, packet []byte, datagram bool) {
		r := responder{clients: known, exchange: (&world{t: t, zone: zone}).exchange}
		b, _ := r.respond(context.Background(), packet, datagram)
		if b == nil {
			return
		}
		m := unpacked(t, b)
		if m.Id != uint16(packet[0])<<8|uint16(packet[1]) || !m.Response || datagram && len(b) > maxDatagram {
			t.Errorf("%x is answered with %x", packet, b)
		}
		if len(m.Question) == 1 {
			allowed(t, m)
		}
	})
}

// FuzzAnswer is about packets of the cluster's DNS, that carry what the world says.
func FuzzAnswer(f *testing.F) {
	for i, name := range questions {
		q := ask(name, wire.TypeA)
		if v := decide(rome, "", q.Question[0]); v.name != "" {
			q.Question[0].Name = v.name
		}
		for _, texts := range [][]string{
			{"db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.7"}, {"www.example.org. 5 IN CNAME api.bank.svc.cluster.local.", "www.example.org. 5 IN SRV 1 2 3 db.shop-rome.svc.cluster.local."},
			{"x. 5 IN HTTPS 1 api.bank.svc.cluster.local. alpn=h2", "x. 5 IN HIP 2 200100107B1A74DF365639CC39F1D578 AwEAAQ== y. api.bank.svc.cluster.local."},
			{`x. 5 IN TYPE65280 \# 3 010203`, "x. 5 IN IPSECKEY 1 3 2 api.bank.svc.cluster.local. AQ=="},
		} {
			m := (&wire.Msg{}).SetReply(q)
			m.Answer, m.Ns, m.Extra = records(f, texts), records(f, []string{hereSOA}), records(f, texts)
			f.Add(packed(f, m), byte(i))
		}
	}
	f.Fuzz(func(t *testing.T, packet []byte, which byte) {
		name := questions[int(which)%len(questions)]
		kind := uint16(wire.TypeA)
		if strings.HasSuffix(name, "arpa.") {
			kind = wire.TypePTR
		}
		r := responder{clients: known, exchange: func(_ context.Context, question *wire.Msg) (*wire.Msg, error) {
			if len(packet) > 1 {
				question.Id = uint16(packet[0])<<8 | uint16(packet[1])
			}
			if answer := answerTo(question, packet); answer != nil {
				return answer, nil
			}
			return nil, errNobody
		}}
		b, _ := r.respond(context.Background(), packed(t, ask(name, kind, edns(1232, false))), true)
		allowed(t, unpacked(t, b))
	})
}

var questions = []string{"db.shop.svc.cluster.local.", "www.example.org.", "7.0.96.10.in-addr.arpa."}
