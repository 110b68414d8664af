package agent

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// notes is a Keeper of notes, each a copy of the file as another process would have it.
type notes struct {
	nobody
	t    *testing.T
	held map[string]*os.File
}

func (n notes) Hold(kind holder.Kind, name string, file *os.File) error {
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil || kind != holder.Note {
		n.t.Fatalf("holding %s: %v", kind, err)
	}
	n.held[name] = again
	return nil
}

func (n notes) Drop(kind holder.Kind, name string) error {
	if kind == holder.Note {
		delete(n.held, name)
	}
	return nil
}

// milans is a tunnel with all that is noted of one.
func milans(t *testing.T) wanted {
	t.Helper()
	private, err := tunnel.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	shared, err := tunnel.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	return wanted{
		Tunnel: plan.Tunnel{Peering: "peering-milan", Config: tunnel.Config{
			Name: "pelago-x", MTU: 1420, PrivateKey: private, PresharedKey: shared, ListenPort: 7100, Mark: 1, Peer: tunnel.PublicKey{1},
			NextPeer: tunnel.PublicKey{2}, Endpoints: []string{"198.51.100.1:7100"}, Keepalive: 25 * time.Second, Passive: true,
		}},
		probe: plan.Probe{Peering: "peering-milan", At: netip.MustParseAddrPort("169.254.0.4:7077"), Peer: netip.MustParseAddrPort("169.254.0.5:7077")},
	}
}

// TestNote holds that the next process knows of a tunnel what this one does, and that what is no
// note costs its own tunnel alone and is not quoted.
func TestNote(t *testing.T) {
	want := milans(t)
	private, shared := want.Config.PrivateKey, want.Config.PresharedKey
	k := notes{t: t, held: map[string]*os.File{}}
	of := &tunnels{keeper: k, log: logr.Discard()}
	if err := of.note("peering-milan", want); err != nil {
		t.Fatal(err)
	}
	bad, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bad.WriteString(`{"PrivateKey": "c2VjcmV0"}`); err != nil {
		t.Fatal(err)
	}
	if _, err := readNote("x", bad); err == nil || strings.Contains(err.Error(), "c2Vj") {
		t.Errorf("a note without a key is read, or quoted: %v", err)
	}
	all := of.read(map[string]*os.File{"peering-milan": k.held["peering-milan"], "tenant-turin": bad})
	got := all["peering-milan"]
	if len(all) != 1 || !got.Config.PrivateKey.Equal(private) || !got.Config.PresharedKey.Equal(shared) {
		t.Fatalf("read are %+v", all)
	}
	got.Config.PrivateKey, got.Config.PresharedKey, want.Config.PrivateKey, want.Config.PresharedKey = tunnel.Secret{}, tunnel.Secret{}, tunnel.Secret{}, tunnel.Secret{}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read is %+v, want %+v", got, want)
	}
}

// TestNoteEnds holds that of a tunnel that is not wanted any more no note stays, though this process never opened it,
// and that nobody goes on with one whose namespace is gone.
func TestNoteEnds(t *testing.T) {
	k := notes{t: t, held: map[string]*os.File{}}
	for _, key := range []string{"peering-milan", "tenant-turin"} {
		if err := (&tunnels{keeper: k}).note(key, milans(t)); err != nil {
			t.Fatal(err)
		}
	}
	held := &spaces{keeper: k}
	ts := newTunnels(Options{Keeper: k, Left: holder.Left{Notes: maps.Clone(k.held)}, Log: logr.Discard()}, held, nil, nil, nil)
	if err := ts.linger(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	if made, err := held.List(); err != nil || len(made) > 0 || len(ts.all()) > 0 {
		t.Errorf("without namespaces there are now %v, and %d tunnels, %v", made, len(ts.all()), err)
	}
	if err := ts.close(map[string]wanted{"tenant-turin": {}}); err != nil {
		t.Error(err)
	}
	if len(k.held) != 1 || k.held["tenant-turin"] == nil {
		t.Errorf("held are notes of %v", k.held)
	}
}

// TestEarly: who follows another process at once goes on with its tunnels at once, if that one had no doubt.
func TestEarly(t *testing.T) {
	began := time.Now()
	sure, doubting := wanted{}, wanted{}
	doubting.Config.Yield = true
	for _, c := range []struct {
		reason  string
		follows bool
		left    map[string]wanted
		after   time.Duration
		want    time.Duration
	}{
		{"begun by itself", false, map[string]wanted{"a": sure}, 0, lingerAfter},
		{"begun a while ago", false, map[string]wanted{"a": sure}, lingerAfter, 0},
		{"it follows one that was sure", true, map[string]wanted{"a": sure, "b": sure}, 0, 0},
		{"it follows one in doubt", true, map[string]wanted{"a": sure, "b": doubting}, 0, lingerAfter},
	} {
		a := &Agent{options: Options{Follows: c.follows}, began: began, tunnels: &tunnels{left: c.left}}
		if got := a.early(began.Add(c.after)); got != c.want {
			t.Errorf("%s: it waits for %s, want %s", c.reason, got, c.want)
		}
	}
}
