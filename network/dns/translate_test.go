package dns

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	wire "github.com/miekg/dns"
)

// record is one as it stands in a zone file.
func record(t testing.TB, text string) wire.RR {
	t.Helper()
	rr, err := wire.NewRR(text)
	if err != nil || rr == nil {
		t.Fatalf("%s: %v", text, err)
	}
	return rr
}

func records(t testing.TB, texts []string) []wire.RR {
	t.Helper()
	var all []wire.RR
	for _, text := range texts {
		all = append(all, record(t, text))
	}
	return all
}

// lines are records as the library shows them, with spaces.
func lines(all []wire.RR) []string {
	var out []string
	for _, rr := range all {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return out
}

// homeSOA and hereSOA are what comes with names that are not there.
const (
	homeSOA = "cluster.local. 5 IN SOA ns.dns.cluster.local. hostmaster.cluster.local. 1 7200 1800 86400 5"
	hereSOA = "cluster.local. 30 IN SOA ns.dns.cluster.local. root.cluster.local. 77 7200 1800 86400 30"
)

// message is what there is to compare of one.
type message struct {
	Code              string
	Answer, Ns, Extra []string
}

func told(m *wire.Msg) message {
	return message{wire.RcodeToString[m.Rcode], lines(m.Answer), lines(m.Ns), lines(m.Extra)}
}

func TestTranslate(t *testing.T) {
	const no = wire.RcodeNameError
	for _, c := range []struct {
		reason            string
		client            Client
		provider          string
		name              string
		kind              uint16
		code              int
		answer, ns, extra []string
		want              message
	}{
		{reason: "an address, by the very name that was asked for", client: rome, name: "dB.Shop.svc.cluster.local.", kind: wire.TypeA,
			answer: []string{"db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.7"},
			want:   message{Code: "NOERROR", Answer: []string{"dB.Shop.svc.cluster.local. 5 IN A 10.96.0.7"}}},
		{reason: "a home of another domain", client: other, name: "db.shop.svc.home.example.", kind: wire.TypeAAAA,
			answer: []string{"db.shop-rome.svc.cluster.local. 5 IN AAAA fd96::7"},
			want:   message{Code: "NOERROR", Answer: []string{"db.shop.svc.home.example. 5 IN AAAA fd96::7"}}},
		{reason: "a port, with what it points to", client: rome, name: "_sql._tcp.db.shop.svc.cluster.local.", kind: wire.TypeSRV,
			answer: []string{"_sql._tcp.db.shop-rome.svc.cluster.local. 5 IN SRV 0 100 5432 10-42-0-7.db.shop-rome.svc.cluster.local."},
			extra:  []string{"10-42-0-7.db.shop-rome.svc.cluster.local. 5 IN A 10.42.0.7", "dns.kube-system.svc.cluster.local. 5 IN A 10.96.0.10"},
			want: message{Code: "NOERROR", Answer: []string{"_sql._tcp.db.shop.svc.cluster.local. 5 IN SRV 0 100 5432 10-42-0-7.db.shop.svc.cluster.local."},
				Extra: []string{"10-42-0-7.db.shop.svc.cluster.local. 5 IN A 10.42.0.7"}}},
		{reason: "a name of the tenant's by an address", client: rome, name: "7.0.96.10.in-addr.arpa.", kind: wire.TypePTR,
			answer: []string{"7.0.96.10.in-addr.arpa. 5 IN PTR db.SHOP-rome.svc.cluster.local."},
			want:   message{Code: "NOERROR", Answer: []string{"7.0.96.10.in-addr.arpa. 5 IN PTR db.shop.svc.cluster.local."}}},
		{reason: "a name of the provider's by an address", client: rome, name: "10.0.96.10.in-addr.arpa.", kind: wire.TypePTR,
			answer: []string{"10.0.96.10.in-addr.arpa. 5 IN PTR dns.kube-system.svc.cluster.local."}, want: message{Code: "NXDOMAIN"}},
		{reason: "a namespace here that is called as one at home", client: rome, name: "11.0.96.10.in-addr.arpa.", kind: wire.TypePTR,
			answer: []string{"11.0.96.10.in-addr.arpa. 5 IN PTR db.shop.svc.cluster.local."}, want: message{Code: "NXDOMAIN"}},
		{reason: "of several names the tenant's", client: rome, name: "7.0.42.10.in-addr.arpa.", kind: wire.TypePTR,
			answer: []string{"7.0.42.10.in-addr.arpa. 5 IN PTR a.bank.svc.cluster.local.", "7.0.42.10.in-addr.arpa. 5 IN PTR 10-42-0-7.db.shop-rome.svc.cluster.local."},
			want:   message{Code: "NOERROR", Answer: []string{"7.0.42.10.in-addr.arpa. 5 IN PTR 10-42-0-7.db.shop.svc.cluster.local."}}},
		{reason: "the world, with the rest of its answer", client: rome, name: "www.example.org.", kind: wire.TypeA,
			answer: []string{"www.example.org. 60 IN CNAME a.example.net.", "a.example.net. 60 IN A 192.0.2.1"}, ns: []string{"example.net. 60 IN NS ns.example.net."},
			extra: []string{"ns.example.net. 60 IN A 192.0.2.53"},
			want: message{Code: "NOERROR", Answer: []string{"www.example.org. 60 IN CNAME a.example.net.", "a.example.net. 60 IN A 192.0.2.1"},
				Ns: []string{"example.net. 60 IN NS ns.example.net."}, Extra: []string{"ns.example.net. 60 IN A 192.0.2.53"}}},
		{reason: "a name of the world that leads to the provider's things", client: rome, name: "trick.example.org.", kind: wire.TypeA,
			answer: []string{"trick.example.org. 60 IN CNAME api.bank.svc.cluster.local.", "api.bank.svc.cluster.local. 5 IN A 10.96.0.9"}, want: message{Code: "NXDOMAIN"}},
		{reason: "one that leads to a domain below", client: rome, name: "trick.example.org.", kind: wire.TypeA,
			answer: []string{"trick.example.org. 60 IN DNAME cluster.local.", "x.example.org. 60 IN A 192.0.2.1"}, want: message{Code: "NXDOMAIN"}},
		{reason: "one that leads to the tenant's", client: rome, name: "good.example.org.", kind: wire.TypeA,
			answer: []string{"good.example.org. 60 IN CNAME db.shop-rome.svc.cluster.local.", "db.shop-rome.svc.cluster.local. 5 IN A 10.96.0.7"},
			want:   message{Code: "NOERROR", Answer: []string{"good.example.org. 60 IN CNAME db.shop.svc.cluster.local.", "db.shop.svc.cluster.local. 5 IN A 10.96.0.7"}}},
		{reason: "no such Service: home's word for it", client: rome, name: "no.shop.svc.cluster.local.", kind: wire.TypeA, code: no,
			ns: []string{hereSOA}, want: message{Code: "NXDOMAIN", Ns: []string{homeSOA}}},
		{reason: "nothing of this type, for as long as the cluster's DNS says", client: rome, name: "db.shop.svc.cluster.local.", kind: wire.TypeAAAA,
			ns: []string{strings.ReplaceAll(hereSOA, "30", "2")}, want: message{Code: "NOERROR", Ns: []string{strings.NewReplacer("local. 5", "local. 2", "86400 5", "86400 2").Replace(homeSOA)}}},
		{reason: "no such name in the world", client: rome, name: "no.example.org.", kind: wire.TypeA, code: no,
			ns:   []string{"example.org. 60 IN SOA ns.example.org. root.example.org. 1 2 3 4 5"},
			want: message{Code: "NXDOMAIN", Ns: []string{"example.org. 60 IN SOA ns.example.org. root.example.org. 1 2 3 4 5"}}},
		{reason: "a zone of addresses that names the provider", client: rome, name: "9.0.0.10.in-addr.arpa.", kind: wire.TypePTR, code: no,
			ns: []string{"10.in-addr.arpa. 60 IN SOA ns.dns.cluster.local. root.cluster.local. 1 2 3 4 5"}, want: message{Code: "NXDOMAIN"}},
		{reason: "the cluster's DNS is out of order", client: rome, name: "db.shop.svc.cluster.local.", kind: wire.TypeA, code: wire.RcodeServerFailure,
			answer: []string{"api.bank.svc.cluster.local. 5 IN A 10.96.0.9"}, want: message{Code: "SERVFAIL"}},
		{reason: "a code that has no place in an answer", client: rome, name: "www.example.org.", kind: wire.TypeA, code: wire.RcodeBadCookie, want: message{Code: "SERVFAIL"}},
		{reason: "records of another class, and of the connection", client: rome, name: "www.example.org.", kind: wire.TypeTXT,
			answer: []string{`www.example.org. 60 CH TXT "x"`, `www.example.org. 60 IN TXT "y"`},
			want:   message{Code: "NOERROR", Answer: []string{`www.example.org. 60 IN TXT "y"`}}},
		{reason: "types that nobody knows", client: rome, name: "www.example.org.", kind: 65280,
			answer: []string{`www.example.org. 60 IN TYPE65280 \# 3 010203`},
			want:   message{Code: "NOERROR", Answer: []string{`www.example.org. 60 CLASS1 TYPE65280 \# 3 010203`}}},
		{reason: "a provider of another domain", client: rome, provider: "milan.example", name: "8.0.96.10.in-addr.arpa.", kind: wire.TypePTR,
			answer: []string{"8.0.96.10.in-addr.arpa. 5 IN PTR db.shop-rome.svc.milan.example."},
			want:   message{Code: "NOERROR", Answer: []string{"8.0.96.10.in-addr.arpa. 5 IN PTR db.shop.svc.cluster.local."}}},
	} {
		q := wire.Question{Name: c.name, Qtype: c.kind, Qclass: wire.ClassINET}
		tr := translation{client: c.client, provider: c.provider, question: q, verdict: decide(c.client, c.provider, q)}
		if tr.verdict.action != forward {
			t.Fatalf("%s: the cluster's DNS is not asked: %+v", c.reason, tr.verdict)
		}
		up := &wire.Msg{Answer: records(t, c.answer), Ns: records(t, c.ns), Extra: records(t, c.extra)}
		up.Rcode = c.code
		up.SetEdns0(4096, false)
		if diff := cmp.Diff(c.want, told(tr.answer(up))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

// TestEveryName holds that no type of record hides a name of the provider.
func TestEveryName(t *testing.T) {
	const theirs, ours, home = "api.bank.svc.cluster.local.", "db.shop-rome.svc.cluster.local.", "db.shop.svc.cluster.local."
	tr := translation{client: rome}
	for _, text := range []string{
		"%% 5 IN A 192.0.2.1", "x. 5 IN CNAME %%", "x. 5 IN DNAME %%", "x. 5 IN NS %%", "x. 5 IN PTR %%", "x. 5 IN MX 1 %%", "x. 5 IN SRV 1 2 3 %%",
		"x. 5 IN SOA %% y. 1 2 3 4 5", "x. 5 IN SOA y. %% 1 2 3 4 5", `x. 5 IN NAPTR 1 2 "s" "t" "" %%`, "x. 5 IN RP %% y.", "x. 5 IN RP y. %%",
		"x. 5 IN AFSDB 1 %%", "x. 5 IN RT 1 %%", "x. 5 IN PX 1 %% y.", "x. 5 IN PX 1 y. %%", "x. 5 IN KX 1 %%", "x. 5 IN MB %%", "x. 5 IN MG %%", "x. 5 IN MR %%",
		"x. 5 IN MINFO %% y.", "x. 5 IN MINFO y. %%", "x. 5 IN MF %%", "x. 5 IN MD %%", "x. 5 IN NSEC %% A", "x. 5 IN LP 1 %%", "x. 5 IN TALINK %% y.", "x. 5 IN TALINK y. %%",
		"x. 5 IN SVCB 1 %%", "x. 5 IN HTTPS 1 %% alpn=h2", "x. 5 IN IPSECKEY 1 3 2 %% AQ==", "x. 5 IN AMTRELAY 1 0 3 %%",
		"x. 5 IN HIP 2 200100107B1A74DF365639CC39F1D578 AwEAAQ== y. %%", "x. 5 IN RRSIG A 8 1 5 20300101000000 20200101000000 1 %% AQ==",
		"x. 5 IN SIG A 8 1 5 20300101000000 20200101000000 1 %% AQ==", "x. 5 IN NSAP-PTR %%",
	} {
		if f := tr.record(record(t, strings.ReplaceAll(text, "%%", theirs))); f != foreign {
			t.Errorf("%s names the provider's, and is %d", text, f)
		}
		rr := record(t, strings.ReplaceAll(text, "%%", ours))
		if f := tr.record(rr); f != translated || !slices.Contains(strings.Fields(rr.String()), home) {
			t.Errorf("%s is %d: %s", text, f, rr)
		}
	}
}
