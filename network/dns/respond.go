package dns

import (
	"context"
	"encoding/binary"
	"time"

	wire "github.com/miekg/dns"
)

// result is what became of a question.
type result int

const (
	forwarded result = iota // answered by the cluster's DNS, for the name as it was
	renamed                 // answered by the cluster's DNS, for the name that this is here
	unknown                 // home's or the provider's own, and not there for the tenant
	refused                 // not a question that is answered to anybody
	malformed               // no question at all
	stranger                // from an address that is no pod of a tenant
	limited                 // too many at once
	failed                  // the cluster's DNS did not answer
)

// resultNames are the results as metrics say them.
var resultNames = [...]string{forwarded: "forwarded", renamed: "translated", unknown: "missing", refused: "refused",
	malformed: "malformed", stranger: "stranger", limited: "limited", failed: "failed"}

// exchange asks the cluster's DNS.
type exchange func(ctx context.Context, question *wire.Msg) (*wire.Msg, error)

// responder answers packets.
type responder struct {
	provider string // the domain
	clients  func() (Client, bool)
	exchange exchange
	// newcomer is how long a client may stay unknown before it is told that nobody answers it.
	newcomer time.Duration
}

const (
	// newcomerMost is that of a server: a kubelet tells the address of a pod a second or so after its containers have
	// begun, and who is refused does not ask again.
	newcomerMost = 2 * time.Second
	// newcomerLook is how often is looked who it is meanwhile.
	newcomerLook = 50 * time.Millisecond
)

// client is who asks, once that is known.
func (r responder) client(ctx context.Context) (c Client, known bool) {
	if c, known = r.clients(); known || r.newcomer == 0 {
		return c, known
	}
	ctx, cancel := context.WithTimeout(ctx, r.newcomer)
	defer cancel()
	tick := time.NewTicker(newcomerLook)
	defer tick.Stop()
	for !known {
		select {
		case <-ctx.Done():
			return c, false
		case <-tick.C:
			c, known = r.clients()
		}
	}
	return c, true
}

// headerSize is that of every message.
const headerSize = 12

// respond answers a packet in at most so many bytes, or with nothing if that is no
// question. Over a datagram the client says how much of them it takes.
func (r responder) respond(ctx context.Context, packet []byte, datagram bool) ([]byte, result) {
	if len(packet) < headerSize || packet[2]&0x80 != 0 { // an answer must never be answered
		return nil, malformed
	}
	question, code := parse(packet)
	if code != wire.RcodeSuccess {
		return pack(packet, nil, failure(code), datagram), malformed
	}
	client, known := r.client(ctx)
	switch {
	case !known && ctx.Err() != nil: // the server ends, and the next one knows
		return nil, stranger
	case !known:
		return pack(packet, question, failure(wire.RcodeRefused), datagram), stranger
	}
	if opt := question.IsEdns0(); opt != nil && opt.Version() != 0 {
		return pack(packet, question, failure(wire.RcodeBadVers), datagram), malformed
	}
	answer, what := r.answer(ctx, client, question)
	return pack(packet, question, answer, datagram), what
}

// parse reads a question.
func parse(packet []byte) (*wire.Msg, int) {
	count := func(i int) uint16 { return binary.BigEndian.Uint16(packet[4+2*i:]) }
	switch {
	case packet[2]>>3&0xf != wire.OpcodeQuery:
		return nil, wire.RcodeNotImplemented
	case count(0) != 1 || count(1) != 0 || count(2) != 0 || count(3) > 2:
		return nil, wire.RcodeFormatError
	}
	question := &wire.Msg{}
	if question.Unpack(packet) != nil || len(question.Question) != 1 {
		return nil, wire.RcodeFormatError
	}
	return question, wire.RcodeSuccess
}

func failure(code int) *wire.Msg {
	m := &wire.Msg{}
	m.Rcode = code
	return m
}

// answer makes the answer to a question, still without what repeats the question.
func (r responder) answer(ctx context.Context, c Client, question *wire.Msg) (*wire.Msg, result) {
	q := question.Question[0]
	t := translation{client: c, provider: r.provider, question: q, verdict: decide(c, r.provider, q)}
	switch t.verdict.action {
	case refuse:
		return failure(wire.RcodeRefused), refused
	case missing:
		return t.miss(wire.RcodeNameError), unknown
	case empty:
		return t.miss(wire.RcodeSuccess), unknown
	}
	ctx, cancel := context.WithTimeout(ctx, allPatience)
	defer cancel()
	up, err := r.exchange(ctx, t.ask(question))
	if err != nil {
		return failure(wire.RcodeServerFailure), failed
	}
	what := forwarded
	if t.verdict.name != "" {
		what = renamed
	}
	return t.answer(up), what
}

// ask is the question for the cluster's DNS: nothing of the client's packet goes on but
// what is known here.
func (t translation) ask(question *wire.Msg) *wire.Msg {
	m := &wire.Msg{}
	m.Id = wire.Id()
	m.RecursionDesired, m.CheckingDisabled = question.RecursionDesired, question.CheckingDisabled
	m.Question = []wire.Question{t.question}
	signed := false
	if t.verdict.name != "" {
		m.Question[0].Name = t.verdict.name
	} else if opt := question.IsEdns0(); opt != nil {
		signed = opt.Do()
	}
	m.SetEdns0(maxDatagram, signed)
	return m
}

// pack makes the packet of an answer.
func pack(packet []byte, question, answer *wire.Msg, datagram bool) []byte {
	answer.Id = binary.BigEndian.Uint16(packet)
	answer.Response = true
	answer.Opcode = int(packet[2] >> 3 & 0xf)
	answer.RecursionDesired = packet[2]&1 != 0
	answer.RecursionAvailable = true
	size := wire.MinMsgSize
	if question != nil {
		answer.CheckingDisabled = question.CheckingDisabled
		answer.Question = question.Question
		if opt := question.IsEdns0(); opt != nil {
			size = min(max(size, int(opt.UDPSize())), maxDatagram)
			answer.SetEdns0(maxDatagram, opt.Do())
		}
	}
	if !datagram {
		size = wire.MaxMsgSize
	}
	answer.Truncate(size)
	out, err := answer.Pack()
	if err != nil || len(out) > size {
		out, err = small(answer).Pack()
	}
	if err != nil { // not even the question can be packed again
		return nil
	}
	return out
}

// small is SERVFAIL in place of an answer that cannot be packed.
func small(answer *wire.Msg) *wire.Msg {
	m := failure(wire.RcodeServerFailure)
	m.Id, m.Response, m.Opcode, m.RecursionDesired, m.RecursionAvailable = answer.Id, true, answer.Opcode, answer.RecursionDesired, true
	m.Question = answer.Question
	return m
}
