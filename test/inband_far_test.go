package test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// inBandFarFile is a consumer, and a provider that nobody can call.
const inBandFarFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns]
- name: milan
  nodes: 1
  behindNAT: true
  addons: [coredns]
`

// patchLine is what the consumer's owner is told to hand to the provider's.
var patchLine = regexp.MustCompile(`(?m)^ *kubectl (patch invitation invitation-[0-9a-f]{12} --type=merge) -p '(\{.*\})'$`)

// TestInBandFar has rome use milan, of which nobody can call anything: milan calls rome, and all that rome
// says to it goes through that tunnel.
func TestInBandFar(t *testing.T) {
	kubetest.RequireClusters(t)
	s := kubetest.Sandbox(t, kubetest.Options{Name: "far", File: sandboxFile(t, inBandFarFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	b := &inBand{continuum: c}
	now := statusOf(t, s)
	for what, address := range map[string]string{"API server": now.api(t, "milan"), "kubelet": join(now.address(t, "milan"), kubeletPort)} {
		if got := from(t, s, "rome", "dial", address).Dial; got == "open" {
			t.Fatalf("rome dials milan's %s at %s and gets through", what, address)
		}
	}
	b.note(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{{"Line", b.farLine}, {"Both", b.farBoth}, {"Cut", b.cut}, {"Unpeer", b.unpeer}} { // Line while no NAT remembers a tunnel
		if !t.Run(part.name, part.run) && part.name == "Both" {
			t.Fatal("there is nothing that the other parts could be about")
		}
	}
}

// farBoth peers with both kubeconfigs, which is all there is to do. It lasts for the parts that follow.
func (b *inBand) farBoth(t *testing.T) {
	t.Cleanup(func() {
		if t.Failed() {
			b.part(t, "rome", "milan")
		}
	})
	r := b.TryPelago(t, "rome", "peer", "--remote-kubeconfig", b.Files["milan"], "--in-band")
	if r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
	}
	b.introduced(t)
	t.Run("Works", b.works)
}

// farLine peers by a line: who runs it is told what to have the provider's owner do, and the same line
// does it after that.
func (b *inBand) farLine(t *testing.T) {
	t.Cleanup(func() { b.part(t, "rome", "milan") })
	line := b.Invite(t, "milan", "--in-band")
	var told []string
	eventually(t, patience, "the line says what to tell the provider's owner", func() error { // not before there is a gateway
		r := b.Shell(t, "rome", line+" --timeout 20s")
		if r.Code == 0 {
			t.Fatalf("it ends well, though nobody can be called\n%s%s", r.Out, r.Errs)
		}
		if told = patchLine.FindStringSubmatch(r.Errs); told == nil {
			return fmt.Errorf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
		return nil
	})
	if text := b.Pelago(t, "rome", "explain", "peering", "milan"); !strings.Contains(text, "spec.inBand.endpoints") {
		t.Errorf("explain does not say what to do:\n%s", text)
	}
	b.Kubectl(t, "milan", append(strings.Fields(told[1]), "-p", told[2])...)
	if r := b.Shell(t, "rome", line); r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, b.TryPelago(t, "rome", "explain", "peering", "milan").Out)
	}
	b.introduced(t)
	t.Run("Works", b.works) // and takes along what it made
	b.Pelago(t, "rome", "unpeer", "milan")
	b.left(t)
}
