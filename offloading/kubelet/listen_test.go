package kubelet

import (
	"io"
	"net"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/internal/lobby"
)

// TestStrangersKeepNobodyOut holds that one address that opens as many connections as it can, and says nothing,
// keeps nobody out, neither at its port nor at others, that all ports together have no more than there may be, and
// that a command that runs is not ended for it.
func TestStrangersKeepNobodyOut(t *testing.T) {
	p := &provider{serve: echo}
	s := newStage(t, p)
	const most, each = 16, 8 // more than this test asks for
	s.kubelets.close(s.node.Name)
	s.kubelets.lobby = lobby.New(most, each)
	var ports []string
	for _, node := range []*corev1.Node{s.node, {ObjectMeta: metav1.ObjectMeta{Name: s.node.Name + "-other"}}} {
		if _, err := s.kubelets.open(node); err != nil {
			t.Fatal(err)
		}
		ports = append(ports, net.JoinHostPort("127.0.0.1", itoa(s.kubelets.Ports(node.Name))))
	}
	res, command, said := s.upgrade(t, "POST", "/exec/shop/web-0/web?command=ls&output=1", "SPDY/3.1", nil)
	if res.StatusCode != 101 {
		t.Fatalf("the command got %d", res.StatusCode)
	}
	for host := byte(1); host <= 3; host++ {
		for i := range 3 * most {
			from := &net.TCPAddr{IP: net.IPv4(127, 0, 2, host)}
			c, err := (&net.Dialer{LocalAddr: from}).Dial("tcp", ports[i%2])
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		for _, port := range ports {
			if got, text := do(t, s.caller(t, s.may), "GET", "https://"+port+"/healthz", ""); got != 200 {
				t.Errorf("with %d addresses that say nothing: got %d: %s", host, got, text)
			}
		}
	}
	if _, err := io.WriteString(command, "go on"); err != nil {
		t.Fatal(err)
	}
	if err := command.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(said); err != nil || !strings.HasPrefix(string(text), "go on") {
		t.Errorf("the command was ended: %q, %v", text, err)
	}
}
