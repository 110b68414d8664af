package tunnel

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/pelago-dev/pelago/network/netns"
)

// triedAtOnce is how many addresses one round asks. All get the same question, and the
// first answer counts.
const triedAtOnce = 8

// anewAfter is how many rounds are asked in vain, while the peer asks too, before it is made anew.
const anewAfter = 4

// userspace is WireGuard in this process: the library's device between a TUN device in
// the gateway's namespace and a socket in the host's.
type userspace struct {
	options Options

	mu     sync.Mutex
	keep   *os.File // the TUN device, over the end of device
	tun    *attached
	socket *socket
	device *device.Device
	member *member // among those that share processors
	config Config  // as device has it
	// active is the key of the peer that packets go to and may come from.
	active PublicKey
	// idle is what had been received from the key that is not active when it became that.
	idle uint64
	// since is when that key had last shaken hands.
	since time.Time
	// asked is how many questions for a handshake had come when a row of rounds began, and answered how many
	// of them were.
	asked, answered uint64
	told            told
}

func newUserspace(o Options) (engine, error) { return &userspace{options: o}, nil }

func (u *userspace) width() int { return triedAtOnce }

// watch is while the peer may have to be told again. Whether it uses its next key responding sees.
func (u *userspace) watch() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.told.watch(time.Now())
}

func (u *userspace) expect(at []netip.AddrPort) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.socket != nil {
		u.socket.sessions.limits.expect(at)
	}
}

func (u *userspace) file() *os.File {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.keep
}

func (u *userspace) close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.drop()
	return nil
}

// set makes the TUN device, then the WireGuard, then their settings.
func (u *userspace) set(c Config) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.hold(c); err != nil {
		return err
	}
	if u.device != nil {
		u.tun.setMTU(c.MTU)
		return u.change(c)
	}
	var err error
	if u.tun, err = attach(u.keep, c.MTU); err != nil {
		return err
	}
	u.member = u.options.Sharing.join()
	u.tun.member = u.member
	u.socket = &socket{Bind: conn.NewStdNetBind(), responding: u.responding, out: u.tun.out, in: u.tun.in, member: u.member}
	u.socket.sessions.came = u.options.poke
	pace(1, 0)
	u.device = device.NewDevice(u.tun, u.socket, u.logger(c.Name))
	u.config, u.active = Config{}, PublicKey{}
	err = u.change(c)
	if err == nil {
		if err = netns.In(u.options.Host, u.device.Up); err != nil {
			err = fmt.Errorf("listening on UDP port %d: %w", c.ListenPort, err)
		}
	}
	if err != nil {
		u.stop()
	}
	return err
}

// hold has a TUN device that is there, with its MTU and up.
func (u *userspace) hold(c Config) error {
	there, err := ready(u.options.Namespace, c.Name, c.MTU)
	if err != nil {
		return err
	}
	if u.keep != nil {
		if _, err := nameOf(u.keep); err == nil && there {
			if !u.running() {
				u.stop() // others may hold the TUN device, and nobody can make it while they do
			}
			return nil
		}
		u.drop() // somebody removed it
	}
	given := u.options.TUN
	u.options.TUN = nil // once
	if given != nil && there {
		if name, err := nameOf(given); err == nil && name == c.Name {
			u.keep, err = keepTUN(given)
			return err
		}
	}
	if u.keep, err = openTUN(u.options.Namespace, c.Name); err != nil {
		return err
	}
	if there, err = ready(u.options.Namespace, c.Name, c.MTU); err == nil && !there {
		err = fmt.Errorf("making TUN device %s: it is gone again", c.Name)
	}
	if err != nil {
		u.drop()
	}
	return err
}

// running reports that WireGuard has not ended by itself, as it does when it cannot read.
func (u *userspace) running() bool {
	if u.device == nil {
		return true // it is not to run yet
	}
	select {
	case <-u.device.Wait():
		return false
	default:
		return true
	}
}

// stop ends WireGuard and leaves the TUN device.
func (u *userspace) stop() {
	if u.device != nil {
		u.device.Close()
		pace(-1, 0)
		u.member.leave()
		u.device, u.tun, u.socket, u.member, u.told = nil, nil, nil, nil, told{}
	}
}

func (u *userspace) drop() {
	u.stop()
	if u.keep != nil {
		_ = u.keep.Close() // it was only held
		u.keep = nil
	}
}

// change brings the device from one config to another, sending differences alone.
func (u *userspace) change(c Config) error {
	rekeyed := !u.config.PrivateKey.IsZero() && !u.config.PrivateKey.Equal(c.PrivateKey)
	was := u.active
	if u.active.IsZero() || !c.accepts(u.active) {
		u.active = c.Peer
	}
	if was != u.active || falls(u.config, c) {
		u.told = told{}
	}
	lines := difference(u.config, c, u.active)
	if !c.Passive && !was.IsZero() && was != u.active && u.active == u.config.NextPeer { // known, and was never gone over to
		lines += allTo(u.active, c.Keepalive)
	}
	u.socket.sessions.is(c.PrivateKey.Public())
	if lines != "" {
		// A change of port opens sockets.
		if err := netns.In(u.options.Host, func() error { return u.device.IpcSet(lines) }); err != nil {
			u.stop() // what it has now is not known: make it anew next time
			return fmt.Errorf("setting WireGuard: %w", err)
		}
	}
	another := u.config.NextPeer != c.NextPeer || falls(u.config, c)
	u.config = c
	if another {
		peers, _, err := u.peers()
		if err != nil {
			return err
		}
		u.idle, u.since = peers[c.NextPeer].Received, peers[c.NextPeer].Handshake
	}
	u.watchNext()
	if rekeyed && !c.Passive {
		if peer := u.device.LookupPeer(device.NoisePublicKey(u.active)); peer != nil {
			_ = peer.SendHandshakeInitiation(false) // else the next packet does
		}
	}
	return nil
}

// falls says that a device becomes passive. Then its peers are made anew: with their keys and
// timers goes all that would have them speak.
func falls(old, c Config) bool { return c.Passive && !old.Passive }

// difference is what WireGuard has to be told, in its configuration protocol. It holds
// secrets.
func difference(old, c Config, active PublicKey) string {
	var b strings.Builder
	line := func(key string, value any) { fmt.Fprintf(&b, "%s=%v\n", key, value) }
	key := func(s Secret) string { k := s.Reveal(); return hex.EncodeToString(k[:]) }
	fresh := old.Name == ""
	if !old.PrivateKey.Equal(c.PrivateKey) {
		line("private_key", key(c.PrivateKey))
	}
	if old.ListenPort != c.ListenPort {
		line("listen_port", c.ListenPort)
	}
	if old.Mark != c.Mark {
		line("fwmark", c.Mark)
	}
	var had []PublicKey
	if !fresh {
		had = old.peers()
	}
	for _, k := range had {
		if k != c.Peer && k != c.NextPeer || falls(old, c) {
			line("public_key", hex.EncodeToString(k[:]))
			line("remove", true)
		}
	}
	for _, k := range c.peers() {
		known := !fresh && (k == old.Peer || k == old.NextPeer) && !falls(old, c)
		spoke, speaks := known && !old.Passive, k == active && !c.Passive
		var p strings.Builder
		if !known && !c.PresharedKey.IsZero() || known && !old.PresharedKey.Equal(c.PresharedKey) {
			fmt.Fprintf(&p, "preshared_key=%s\n", key(c.PresharedKey))
		}
		if speaks && !spoke {
			p.WriteString("allowed_ip=0.0.0.0/0\nallowed_ip=::/0\n")
		}
		if speaks && (!spoke && c.Keepalive != 0 || spoke && old.Keepalive != c.Keepalive) {
			fmt.Fprintf(&p, "persistent_keepalive_interval=%d\n", int(c.Keepalive.Seconds()))
		}
		if !known || p.Len() > 0 {
			line("public_key", hex.EncodeToString(k[:]))
			b.WriteString(p.String())
		}
	}
	return b.String()
}

// stats reads the device. It also goes over to the other accepted key when there was a
// handshake with that one later.
func (u *userspace) stats() (Stats, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.device == nil || !u.running() {
		return Stats{}, errors.New("WireGuard has ended; Set makes it anew")
	}
	peers, port, err := u.peers()
	if err != nil {
		return Stats{}, err
	}
	for k, p := range peers {
		if k != u.active && p.Handshake.After(peers[u.active].Handshake) && p.Handshake.After(u.since) {
			if err := u.goOver(k, peers[u.active]); err != nil {
				return Stats{}, err
			}
		}
	}
	s := peers[u.active]
	if !u.config.Passive && u.told.again(s, u.socket.sessions.answers.Load(), time.Now()) {
		if peer := u.device.LookupPeer(device.NoisePublicKey(u.active)); peer != nil {
			peer.SendKeepalive()
		}
	}
	s.Answers = u.socket.sessions.answers.Load()
	s.Peer, s.ListenPort, s.Dropped, s.Rested = u.active, port, u.socket.sessions.dropped(), u.member.hasRested()
	for k, p := range peers {
		if k != u.active {
			s.Received, s.Sent = s.Received+p.Received, s.Sent+p.Sent
			if p.Handshake.After(s.Handshake) { // while the change is not confirmed yet
				s.Handshake = p.Handshake
			}
		}
	}
	return s, nil
}

// yield is how long an answer is held back by Config.Yield. It is much shorter than tryGap,
// after which the peer asks anew.
const yield = 250 * time.Millisecond

// settle is how long packets with the peer's old keys may still be under way when it first
// uses its next key.
const settle = 30 * time.Millisecond

// responding is called before an answer to somebody's question for a handshake leaves, and
// returns when it may. If it was the peer, with the key that it said it would use next, packets are accepted from
// that one before it can send any, and from the old one until the last have come.
func (u *userspace) responding() {
	u.mu.Lock()
	late := u.config.Yield
	u.mu.Unlock()
	if late {
		wait(yield)
	}
	if !u.nextAsked() {
		return // it was somebody else
	}
	wait(settle)
	u.mu.Lock()
	defer u.mu.Unlock()
	if next := u.config.NextPeer; u.device != nil && !next.IsZero() && u.active != next {
		if peers, _, err := u.peers(); err == nil {
			_ = u.goOver(next, peers[u.active]) // else stats does
		}
	}
}

func wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// nextAsked reports whether something came from the peer's next key, which is not active.
func (u *userspace) nextAsked() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := u.config.NextPeer
	if u.device == nil || next.IsZero() || u.active == next {
		return false
	}
	peers, _, err := u.peers()
	return err == nil && peers[next].Received > u.idle
}

// goOver gives all addresses to another accepted key, from one of which this is known. A
// passive device has none to give.
func (u *userspace) goOver(to PublicKey, from Stats) error {
	if !u.config.Passive {
		if err := u.device.IpcSet(allTo(to, u.config.Keepalive)); err != nil {
			return fmt.Errorf("going over to the peer's key %s: %w", to, err)
		}
	}
	u.active, u.idle, u.since = to, from.Received, from.Handshake
	u.watchNext()
	return nil
}

// allTo gives all addresses to a key that is known.
func allTo(key PublicKey, keepalive time.Duration) string {
	return "public_key=" + hex.EncodeToString(key[:]) + "\nupdate_only=true\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n" +
		fmt.Sprintf("persistent_keepalive_interval=%d\n", int(keepalive.Seconds()))
}

// watchNext has answers held back as Config.Yield says, and while the peer may begin to use its
// next key.
func (u *userspace) watchNext() {
	u.socket.watch.Store(u.config.Yield || !u.config.NextPeer.IsZero() && u.active != u.config.NextPeer)
}

// try asks at all addresses with the same question, and the first answer is where the peer
// is. The library would ask only at the place it has, and not within 5 seconds of
// its last question; it could be made to by expiring its keys, but then packets would have
// to wait where the old keys still serve.
func (u *userspace) try(at []netip.AddrPort, round int) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.device == nil || !u.running() {
		return errors.New("WireGuard has ended; Set makes it anew")
	}
	peers, _, err := u.peers()
	if err != nil {
		return err
	}
	var errs []error
	switch asked, answered := u.socket.sessions.asked.Load(), u.socket.sessions.answered.Load(); {
	case round%anewAfter == 1:
		u.asked, u.answered = asked, answered
	case round%anewAfter == 0 && asked != u.asked && answered == u.answered: // who is answered is not taken for a copy
		if err := u.anew(peers); err != nil {
			return err
		}
	}
	u.told = asked(time.Now(), peers[u.active].Handshake, u.socket.sessions.answers.Load())
	u.socket.sessions.waiting.Store(true)
	for _, k := range u.config.peers() {
		errs = append(errs, u.ask(k, peers[k].Endpoint, at))
	}
	return errors.Join(errs...)
}

// anew makes the peers anew, who ask and get no answer. The library remembers when by its clock a peer asked last, and
// takes what is earlier for a copy: a gateway that has moved to a node whose clock is behind would not be heard for as
// long as the clocks differ. Who has copied a question of before may send it then, as to a device that has just been
// made: he cannot go on with what he is answered, the peer is sought at all addresses after as before, and what limits
// remember is not taken again. Where nobody asks, as while a link is cut, or who asks is answered, as where answers
// take longer than a round, the keys stay: they may serve again or still do.
func (u *userspace) anew(were map[PublicKey]Stats) error {
	var b strings.Builder
	for _, k := range u.config.peers() {
		fmt.Fprintf(&b, "public_key=%s\nremove=true\n", hex.EncodeToString(k[:]))
	}
	none := u.config
	none.Name = "" // it has no peers yet
	b.WriteString(difference(none, u.config, u.active))
	for k, p := range were { // last, so that the library does not ask too, which would void what we ask
		if p.Endpoint.IsValid() && u.config.accepts(k) {
			fmt.Fprintf(&b, "public_key=%s\nupdate_only=true\nendpoint=%s\n", hex.EncodeToString(k[:]), p.Endpoint)
		}
	}
	if err := u.device.IpcSet(b.String()); err != nil {
		u.stop()
		return fmt.Errorf("making peers anew: %w", err)
	}
	u.idle, u.since = 0, time.Time{}
	return nil
}

// ask sends one question to all addresses. It fails when it could not leave to any.
func (u *userspace) ask(k PublicKey, place netip.AddrPort, at []netip.AddrPort) error {
	peer := u.device.LookupPeer(device.NoisePublicKey(k))
	if peer == nil {
		return fmt.Errorf("asking %s for a handshake: no such peer", k)
	}
	if !place.IsValid() { // so that the library's own questions go somewhere
		_ = u.device.IpcSet("public_key=" + hex.EncodeToString(k[:]) + "\nupdate_only=true\nendpoint=" + at[0].String() + "\n")
	}
	question, err := u.device.CreateMessageInitiation(peer)
	if err != nil {
		return fmt.Errorf("asking %s for a handshake: %w", k, err)
	}
	packet, err := binary.Append(nil, binary.LittleEndian, question)
	if err != nil {
		return fmt.Errorf("asking %s for a handshake: %w", k, err)
	}
	var macs device.CookieGenerator
	macs.Init(device.NoisePublicKey(k))
	macs.AddMacs(packet)
	var errs []error
	for _, a := range at {
		endpoint, err := u.socket.ParseEndpoint(a.String())
		if err == nil {
			err = u.socket.Send([][]byte{packet}, endpoint)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("asking at %s for a handshake: %w", a, err))
		}
	}
	if len(errs) < len(at) {
		return nil
	}
	return errors.Join(errs...)
}

// logger passes on what the library calls errors; most are of the network and pass.
func (u *userspace) logger(name string) *device.Logger {
	return &device.Logger{
		Verbosef: device.DiscardLogf,
		Errorf: func(format string, args ...any) {
			u.options.Log.V(1).Info("wireguard", "tunnel", name, "error", fmt.Sprintf(format, args...))
		},
	}
}
