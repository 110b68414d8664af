package dns

import (
	"strings"

	wire "github.com/miekg/dns"
)

// action is what a question leads to.
type action int

const (
	// forward asks the cluster's DNS.
	forward action = iota
	// refuse answers REFUSED.
	refuse
	// missing answers that there is no such name.
	missing
	// empty answers that there is the name, and nothing of it.
	empty
)

// verdict is what becomes of a question.
type verdict struct {
	action action
	// name to ask for, if that is another one.
	name string
	// home says that the name is in home's domain.
	home bool
}

// decide says what becomes of a client's question at a provider of that domain.
func decide(c Client, provider string, q wire.Question) verdict {
	if q.Qclass != wire.ClassINET || !asked(q.Qtype) {
		return verdict{action: refuse}
	}
	if rest, ok := below(q.Name, domainOf(c.Domain)); ok {
		v := atHome(c, domainOf(provider), rest)
		v.home = true
		return v
	}
	if _, ok := below(q.Name, domainOf(provider)); ok {
		return verdict{action: missing}
	}
	return verdict{}
}

// asked says whether a type is one of records: ANY, transfers and the like are not.
func asked(t uint16) bool {
	return t != wire.TypeNone && t != wire.TypeOPT && (t < 128 || t > wire.TypeANY)
}

// atHome is about a name in home's domain, without that.
func atHome(c Client, provider string, rest []string) verdict {
	n := len(rest)
	switch {
	case n == 0:
		return verdict{action: empty}
	case !strings.EqualFold(rest[n-1], "svc"):
		return verdict{action: missing}
	case n == 1:
		return verdict{action: empty}
	}
	namespace := strings.ToLower(rest[n-2])
	mapped := c.Namespaces[namespace]
	switch {
	case mapped == "":
		return verdict{action: missing}
	case n == 2:
		return verdict{action: empty}
	case namespace == "default" && strings.EqualFold(rest[n-3], "kubernetes"):
		return verdict{action: missing} // of the provider, it would be another API
	}
	name := join(rest[:n-2], mapped, "svc", provider)
	if !fits(name) {
		return verdict{action: missing} // too long here, so that it cannot be there
	}
	return verdict{action: forward, name: name}
}
