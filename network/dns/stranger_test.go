package dns

import (
	"net/netip"
	"testing"
	"time"

	wire "github.com/miekg/dns"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestOneStrangerLeavesRoom is about a pod that asks much before anybody knows whose it is, and another one that
// becomes known meanwhile.
func TestOneStrangerLeavesRoom(t *testing.T) {
	s := newStage(t, func(_ string, question *wire.Msg) *wire.Msg {
		return answerBy(t, []string{"www.example.org. 60 IN A 192.0.2.1"}, question)
	})
	newcomer := netnstest.PodAddr(42, 0, 5, true)
	client := s.seen[newcomer]
	s.server.newcomer = netnstest.Patience // however long it takes to make it known
	stop := s.run(s.server)
	s.answers()
	s.mu.Lock()
	delete(s.seen, newcomer)
	s.mu.Unlock()
	loud, err := s.conn(s.Nodes[0].Other, "udp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = loud.Close() }()
	packet, flood := packed(t, ask("www.example.org.", wire.TypeA)), questionsEach+20
	for range flood {
		if _, err := loud.Write(packet); err != nil {
			t.Fatal(err)
		}
	}
	held := func(at netip.Addr) int {
		s.server.questions.mu.Lock()
		defer s.server.questions.mu.Unlock()
		return s.server.questions.from[at]
	}
	netnstest.Await(t, "what the loud one asks too much is left", netnstest.Patience, func() bool { return s.counted(limited) >= flood-2*strangerMost })
	quiet, err := s.conn(s.Nodes[0].Pod, "udp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = quiet.Close() }()
	if _, err := quiet.Write(packet); err != nil {
		t.Fatal(err)
	}
	netnstest.Await(t, "the newcomer is waited for", netnstest.Patience, func() bool { return held(newcomer) == 1 })
	s.mu.Lock()
	s.seen[newcomer] = client
	s.mu.Unlock()
	if err := quiet.SetReadDeadline(time.Now().Add(netnstest.Patience)); err != nil {
		t.Fatal(err)
	}
	buffer, answer := make([]byte, maxQuestion), wire.Msg{}
	n, err := quiet.Read(buffer)
	if err == nil {
		err = answer.Unpack(buffer[:n])
	}
	if err != nil || len(answer.Answer) != 1 {
		t.Errorf("the newcomer: %v, %v", answer.Answer, err)
	}
	stop()
	if len(s.server.questions.of)+len(s.server.questions.from) != 0 {
		t.Errorf("slots that were not given back: %v, %v", s.server.questions.of, s.server.questions.from)
	}
}
