package tunnel

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// TestDifference holds that WireGuard in this process is told of changes alone.
func TestDifference(t *testing.T) {
	own, shared, peer, next := newKey(t), newKey(t), newKey(t).Public(), newKey(t).Public()
	base := Config{Name: "wg", MTU: 1420, PrivateKey: own, ListenPort: 1, Peer: peer, Keepalive: 25 * time.Second}
	words := strings.NewReplacer(
		fmt.Sprintf("%x", own.Reveal()), "OWN", fmt.Sprintf("%x", shared.Reveal()), "SHARED",
		fmt.Sprintf("%x", [32]byte(peer)), "PEER", fmt.Sprintf("%x", [32]byte(next)), "NEXT")
	with := func(f func(*Config)) Config { c := base; f(&c); return c }
	both := with(func(c *Config) { c.NextPeer = next })
	passive := with(func(c *Config) { c.Passive, c.PresharedKey = true, shared })
	speaks := with(func(c *Config) { c.PresharedKey = shared })
	for _, c := range []struct {
		reason   string
		old, new Config
		active   PublicKey
		want     string
	}{
		{"at first all", Config{}, base, peer, "private_key=OWN listen_port=1 public_key=PEER allowed_ip=0.0.0.0/0 allowed_ip=::/0 persistent_keepalive_interval=25"},
		{"the same", base, base, peer, ""},
		{"endpoints and MTU are not its business", base, with(func(c *Config) { c.Endpoints, c.MTU = []string{"a:1"}, 1400 }), peer, ""},
		{"a port", base, with(func(c *Config) { c.ListenPort = 2 }), peer, "listen_port=2"},
		{"a mark", base, with(func(c *Config) { c.Mark = 7 }), peer, "fwmark=7"},
		{"a keepalive less", base, with(func(c *Config) { c.Keepalive = 0 }), peer, "public_key=PEER persistent_keepalive_interval=0"},
		{"a pre-shared key", base, with(func(c *Config) { c.PresharedKey = shared }), peer, "public_key=PEER preshared_key=SHARED"},
		{"a pre-shared key less", with(func(c *Config) { c.PresharedKey = shared }), base, peer, "public_key=PEER preshared_key=" + strings.Repeat("0", 64)},
		{"a next key may not be packets' source yet", base, both, peer, "public_key=NEXT"},
		{"the next key has been gone over to, and the old one goes", both, with(func(c *Config) { c.Peer = next }), next, "public_key=PEER remove=true"},
		{"what becomes passive forgets its keys, and may neither say nor take anything", speaks, passive, peer,
			"public_key=PEER remove=true public_key=PEER preshared_key=SHARED"},
		{"all keys, that of the next one as well", both, with(func(c *Config) { c.Passive, c.NextPeer = true, next }), next,
			"public_key=PEER remove=true public_key=NEXT remove=true public_key=PEER public_key=NEXT"},
		{"what is passive stays so", passive, with(func(c *Config) { c.Passive, c.PresharedKey, c.Keepalive = true, shared, 0 }), peer, ""},
		{"and keeps its keys when it speaks again", passive, speaks, peer,
			"public_key=PEER allowed_ip=0.0.0.0/0 allowed_ip=::/0 persistent_keepalive_interval=25"},
		{"passive from the first", Config{}, with(func(c *Config) { c.Passive = true }), peer, "private_key=OWN listen_port=1 public_key=PEER"},
		{"another peer", base, with(func(c *Config) { c.Peer = next }), next,
			"public_key=PEER remove=true public_key=NEXT allowed_ip=0.0.0.0/0 allowed_ip=::/0 persistent_keepalive_interval=25"},
	} {
		got := strings.Join(strings.Fields(words.Replace(difference(c.old, c.new, c.active))), " ")
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestKernelChange holds the same for the kernel, which is asked what it has. It is all of
// the kernel's part that can be tried where there is no WireGuard in the kernel.
func TestKernelChange(t *testing.T) {
	own, peer, next := newKey(t), newKey(t).Public(), newKey(t).Public()
	config := Config{Name: "wg", PrivateKey: own, ListenPort: 1, Peer: peer, NextPeer: next, Keepalive: 25 * time.Second}
	empty := &wgtypes.Device{}
	first, differs := kernelChange(empty, config, peer)
	if !differs || *first.PrivateKey != wgtypes.Key(own.Reveal()) || *first.ListenPort != 1 || first.FirewallMark != nil || len(first.Peers) != 2 ||
		len(first.Peers[0].AllowedIPs) != 2 || len(first.Peers[1].AllowedIPs) != 0 {
		t.Errorf("at first: %v, %v", first, differs)
	}
	has := &wgtypes.Device{PublicKey: wgtypes.Key(own.Public()), ListenPort: 1, Peers: []wgtypes.Peer{
		{PublicKey: wgtypes.Key(peer), PersistentKeepaliveInterval: 25 * time.Second, AllowedIPs: everything}, {PublicKey: wgtypes.Key(next)},
	}}
	if again, differs := kernelChange(has, config, peer); differs {
		t.Errorf("the same again: %v", again)
	}
	passive := config
	passive.Passive = true
	falls, differs := kernelChange(has, passive, peer)
	if !differs || len(falls.Peers) != 4 || !falls.Peers[0].Remove || !falls.Peers[1].Remove ||
		len(falls.Peers[2].AllowedIPs)+len(falls.Peers[3].AllowedIPs) > 0 || *falls.Peers[2].PersistentKeepaliveInterval != 0 {
		t.Errorf("it becomes passive: %v, %v", falls, differs)
	}
	fallen := *has
	fallen.Peers = []wgtypes.Peer{{PublicKey: wgtypes.Key(peer)}, {PublicKey: wgtypes.Key(next)}}
	if again, differs := kernelChange(&fallen, passive, peer); differs {
		t.Errorf("it stays passive: %v", again)
	}
	if rises, _ := kernelChange(&fallen, config, peer); len(rises.Peers) != 1 || rises.Peers[0].Remove || len(rises.Peers[0].AllowedIPs) != 2 {
		t.Errorf("it speaks again: %v", rises)
	}
	asks := kernelQuestion(config, peer, netip.MustParseAddrPort("198.18.0.2:7"))
	if len(asks.Peers) != 4 || !asks.Peers[0].Remove || len(asks.Peers[1].AllowedIPs) != 2 || len(asks.Peers[3].AllowedIPs) != 0 ||
		*asks.Peers[1].PersistentKeepaliveInterval == 0 || *asks.Peers[3].PersistentKeepaliveInterval == 0 || asks.Peers[3].Endpoint.String() != "198.18.0.2:7" {
		t.Errorf("it asks: %v", asks)
	}
	config.Peer, config.NextPeer = next, PublicKey{}
	if last, _ := kernelChange(has, config, next); len(last.Peers) != 2 || !last.Peers[0].Remove || last.Peers[0].PublicKey != wgtypes.Key(peer) || len(last.Peers[1].AllowedIPs) != 2 {
		t.Errorf("another peer: %v", last)
	}
}

// TestKernelWatch holds that the kernel is asked quickly whether a key is used that was just announced, and slowly one
// that is not used for long, whatever else is set meanwhile.
func TestKernelWatch(t *testing.T) {
	peer, next, now := newKey(t).Public(), newKey(t).Public(), time.Now()
	is := func(next PublicKey, mtu int) Config { return Config{Peer: peer, NextPeer: next, MTU: mtu} }
	k := &kernel{active: peer}
	for _, c := range []struct {
		reason string
		config Config
		ago    time.Duration
		want   time.Duration
	}{
		{"no key is announced", is(PublicKey{}, 1420), time.Hour, 0},
		{"one is", is(next, 1420), 0, watchEvery},
		{"another one", is(newKey(t).Public(), 1420), watchQuick, watchSlow},
		{"none again", is(PublicKey{}, 1420), 0, 0},
		{"one that was announced for long", is(next, 1400), watchQuick, watchSlow},
		{"something else is set", is(next, 1420), 0, watchSlow},
	} {
		if k.is(c.config, now.Add(-c.ago)); k.watch() != c.want {
			t.Errorf("%s: it is asked every %s, want %s", c.reason, k.watch(), c.want)
		}
	}
	if k.active = next; k.watch() != 0 {
		t.Errorf("one that is used is asked for every %s", k.watch())
	}
}

func TestParsePeers(t *testing.T) {
	own := newKey(t)
	key := newKey(t).Public()
	text := fmt.Sprintf("private_key=%x\nlisten_port=51820\npublic_key=%x\npreshared_key=%x\nendpoint=[fd00::1]:7\nlast_handshake_time_sec=5\nlast_handshake_time_nsec=6\ntx_bytes=1\nrx_bytes=2\nallowed_ip=::/0\n", own.Reveal(), [32]byte(key), own.Reveal())
	peers, port, err := parsePeers(text)
	if got := peers[key]; err != nil || port != 51820 || len(peers) != 1 || got.Sent != 1 || got.Received != 2 || !got.Handshake.Equal(time.Unix(5, 6)) || got.Endpoint.String() != "[fd00::1]:7" {
		t.Errorf("%+v, %d, %v", peers, port, err)
	}
	if never, _, err := parsePeers(fmt.Sprintf("public_key=%x\nlast_handshake_time_sec=0\nlast_handshake_time_nsec=0\n", [32]byte(key))); err != nil || !never[key].Handshake.IsZero() {
		t.Errorf("no handshake is %v, %v", never, err)
	}
	if _, _, err := parsePeers(strings.Replace(text, "tx_bytes=1", fmt.Sprintf("tx_bytes=%x", own.Reveal()), 1)); err == nil || leaks(err.Error(), own) != "" {
		t.Errorf("nonsense is understood, or quoted: %v", err)
	}
}

// TestLogTellsNoSecret runs a device through what it logs of: names that do not resolve,
// addresses that cannot be reached, a cut and a change of keys.
func TestLogTellsNoSecret(t *testing.T) {
	var mu sync.Mutex
	var log strings.Builder
	said := func() string { mu.Lock(); defer mu.Unlock(); return log.String() }
	logger := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		log.WriteString(prefix + args + "\n")
	}, funcr.Options{Verbosity: 9})
	rome, milan := newSides(t)
	shared, next := newKey(t), newKey(t)
	config := rome.config(milan, "[fd5a::2]:1", "nowhere.invalid:1", milan.endpoint())
	config.PresharedKey = shared
	d := rome.open(Options{Log: logger}, config)
	rome.cable(false)
	rome.ping(milan, 10*time.Millisecond)
	await(t, "a name and a network are told of", patience, func() bool {
		if err := d.Kick(); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(said(), "nowhere.invalid") && strings.Contains(said(), "unreachable")
	})
	config.PrivateKey = next
	rome.set(d, config)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, key := range []Secret{rome.key, shared, next} {
		if part := leaks(said(), key); part != "" {
			t.Errorf("%q of a secret is in the log:\n%s", part, said())
		}
	}
}
