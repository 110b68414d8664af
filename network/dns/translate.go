package dns

import (
	"reflect"
	"strings"

	wire "github.com/miekg/dns"
)

// translation is of the answer to one question.
type translation struct {
	client   Client
	provider string // its domain
	question wire.Question
	verdict  verdict
}

// fate is what becomes of a name in an answer.
type fate int

const (
	kept fate = iota
	translated
	foreign // of the provider, and not the tenant's
)

// name translates a name of the provider.
func (t translation) name(name string) (string, fate) {
	if t.verdict.name != "" && strings.EqualFold(name, t.verdict.name) {
		return t.question.Name, translated
	}
	rest, ok := below(name, domainOf(t.provider))
	if !ok {
		return name, kept
	}
	n := len(rest)
	if n < 2 || !strings.EqualFold(rest[n-1], "svc") {
		return name, foreign
	}
	mapped := strings.ToLower(rest[n-2])
	for home, here := range t.client.Namespaces {
		if here != mapped {
			continue
		}
		next := join(rest[:n-2], home, "svc", domainOf(t.client.Domain))
		if fits(next) {
			return next, translated
		}
	}
	return name, foreign
}

// answer makes the answer for the client of that of the cluster's DNS. It changes up.
func (t translation) answer(up *wire.Msg) *wire.Msg {
	out := &wire.Msg{}
	out.Rcode = up.Rcode
	if up.Rcode != wire.RcodeSuccess && up.Rcode != wire.RcodeNameError {
		if up.Rcode > 0xf {
			out.Rcode = wire.RcodeServerFailure
		}
		return out
	}
	out.Authoritative = up.Authoritative
	answers := t.section(up.Answer)
	if answers.broken || answers.dropped && len(answers.records) == 0 {
		return t.miss(wire.RcodeNameError)
	}
	if t.verdict.home && len(answers.records) == 0 {
		miss := t.miss(up.Rcode)
		shorten(miss, up.Ns)
		return miss
	}
	authorities, extras := t.section(up.Ns), t.section(up.Extra)
	out.Answer, out.Ns, out.Extra = answers.records, authorities.records, extras.records
	out.AuthenticatedData = up.AuthenticatedData && !answers.touched && !authorities.touched
	return out
}

// miss is an answer without records: of home's domain with what makes it last a moment.
func (t translation) miss(code int) *wire.Msg {
	out := &wire.Msg{}
	out.Rcode = code
	if !t.verdict.home {
		return out
	}
	home := domainOf(t.client.Domain)
	out.Authoritative = true
	out.Ns = []wire.RR{&wire.SOA{
		Hdr: wire.RR_Header{Name: home, Rrtype: wire.TypeSOA, Class: wire.ClassINET, Ttl: missTTL},
		Ns:  join([]string{"ns", "dns"}, home), Mbox: join([]string{"hostmaster"}, home),
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: missTTL,
	}}
	return out
}

// shorten makes a miss last no longer than the cluster's DNS says.
func shorten(miss *wire.Msg, said []wire.RR) {
	for _, rr := range said {
		theirs, ok := rr.(*wire.SOA)
		if !ok {
			continue
		}
		for _, rr := range miss.Ns {
			if ours, ok := rr.(*wire.SOA); ok {
				ours.Minttl = min(ours.Minttl, theirs.Minttl, theirs.Hdr.Ttl)
				ours.Hdr.Ttl = ours.Minttl
			}
		}
	}
}

// section is what is left of a section of an answer.
type section struct {
	records []wire.RR
	// dropped and touched: records were left out, or are not as they were.
	dropped, touched bool
	// broken: what other records hang on was left out.
	broken bool
}

// section translates the records of a section.
func (t translation) section(records []wire.RR) (s section) {
	for _, rr := range records {
		kind := rr.Header().Rrtype
		if kind == wire.TypeOPT || kind == wire.TypeTSIG || rr.Header().Class != wire.ClassINET {
			continue // of the connection, or nothing that was asked for
		}
		switch t.record(rr) {
		case foreign:
			s.dropped, s.touched = true, true
			s.broken = s.broken || kind == wire.TypeCNAME || kind == wire.TypeDNAME
			continue
		case translated:
			s.touched = true
		}
		s.records = append(s.records, rr)
	}
	return s
}

// record translates all names of a record in place: that of its owner, and those that its
// data holds, whatever its type. What is left of one that is foreign is of no use.
func (t translation) record(rr wire.RR) fate {
	worst := kept
	for _, name := range names(rr) {
		next, f := t.name(*name)
		*name, worst = next, max(worst, f)
	}
	return worst
}

// names are those in a record.
func names(rr wire.RR) []*string {
	all := []*string{&rr.Header().Name}
	switch rr.(type) {
	case *wire.A, *wire.AAAA, *wire.TXT: // most records
		return all
	}
	v := reflect.ValueOf(rr).Elem()
	if v.Kind() != reflect.Struct {
		return all
	}
	return within(all, v)
}

// within finds names by the tags with which the library packs them.
func within(all []*string, v reflect.Value) []*string {
	for i := range v.NumField() {
		f, field := v.Type().Field(i), v.Field(i)
		switch f.Tag.Get("dns") {
		case "domain-name", "cdomain-name", "ipsechost", "amtrelayhost":
			switch p := field.Addr().Interface().(type) {
			case *string:
				if *p != "" {
					all = append(all, p)
				}
			case *[]string:
				for j := range *p {
					all = append(all, &(*p)[j])
				}
			}
		default:
			if f.Anonymous && field.Kind() == reflect.Struct { // HTTPS is a SVCB
				all = within(all, field)
			}
		}
	}
	return all
}
