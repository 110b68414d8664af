package holder

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// begin connects a client to a holder, and returns how to end it.
func begin(t *testing.T, h *Holder, complain func(error)) (*Client, Left, func()) {
	t.Helper()
	own, other, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := h.Serve(own, complain); err != nil {
			t.Error(err)
		}
	})
	c, left, err := Open(other)
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() { _ = c.Close(); serving.Wait() })
	t.Cleanup(end)
	return c, left, end
}

func never(t *testing.T) func(error) {
	return func(err error) { t.Errorf("the holder complains: %v", err) }
}

// pipe is a file of which one sees whether the other end is still open somewhere.
func pipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close(); _ = write.Close() })
	return read, write
}

// TestHolder lets one client leave what the next one finds, until it lets go of it.
func TestHolder(t *testing.T) {
	h := &Holder{}
	defer h.Close()
	at := netip.MustParseAddrPort("[2001:db8::1]:7100")
	read, write := pipe(t)
	_, other := pipe(t)

	c, left, end := begin(t, h, never(t))
	if len(left.Namespaces)+len(left.TUNs)+len(left.Notes)+len(left.Last) > 0 {
		t.Errorf("the first client finds %v", left)
	}
	for _, err := range []error{
		c.Hold(Namespace, "peering-milan", write), c.Hold(TUN, "peering-milan", other), c.Hold(TUN, "tenant-turin", other),
		c.Hold(Note, "peering-milan", other), c.Drop(TUN, "tenant-turin"), c.Drop(TUN, "never-held"), c.Last("peering-milan", at), c.Last("tenant-turin", at), c.Last("tenant-turin", netip.AddrPort{}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	end()
	if held := h.Held(); !slices.Equal(held, []string{"namespace peering-milan", "note peering-milan", "tun peering-milan"}) {
		t.Fatalf("held are %v", held)
	}
	_ = write.Close()

	c, left, end = begin(t, h, never(t))
	if len(left.Namespaces) != 1 || len(left.TUNs) != 1 || len(left.Notes) != 1 || len(left.Last) != 1 || left.Last["peering-milan"] != at {
		t.Fatalf("left are %v", left)
	}
	left.TUNs["peering-milan"].Close()
	left.Notes["peering-milan"].Close()
	again := left.Namespaces["peering-milan"]
	if _, err := again.WriteString("the same"); err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	if err := c.Hold(Namespace, "peering-milan", other); err != nil { // instead
		t.Fatal(err)
	}
	end()
	var text bytes.Buffer
	if _, err := text.ReadFrom(read); err != nil || text.String() != "the same" { // ends, as nobody has it any more
		t.Errorf("read %q, %v", text.String(), err)
	}
}

// TestMalformed holds that a client gone mad costs what it says, and no descriptor.
func TestMalformed(t *testing.T) {
	h := &Holder{}
	defer h.Close()
	var complaints []error
	c, _, end := begin(t, h, func(err error) { complaints = append(complaints, err) })
	_, file := pipe(t)
	fd := int(file.Fd())
	before := open(t)
	cases := []struct {
		reason, text string
		files        []int
	}{
		{"nothing but a file", " ", []int{fd}},
		{"no word of ours", "burn namespace x", []int{fd}},
		{"no kind", "hold socket x", []int{fd}},
		{"a name with more words", "hold tun x y", []int{fd}},
		{"a name too long", "hold tun " + strings.Repeat("x", 300), []int{fd}},
		{"cut", "hold tun " + strings.Repeat("x", 3000), []int{fd}},
		{"a control character", "hold tun x\n", []int{fd}},
		{"no name", "hold tun ", []int{fd}},
		{"nothing to hold", "hold tun x", nil},
		{"two things to hold", "hold tun x", []int{fd, fd}},
		{"more than are looked at", "hold tun x", slices.Repeat([]int{fd}, 50)},
		{"something with what needs nothing", "drop tun x", []int{fd}},
		{"an address that is none", "last x 10.0.0.1", nil},
		{"an address written otherwise", "last x 10.0.0.1:007", nil},
		{"what only the holder says", "ready", []int{fd}},
	}
	for _, k := range cases {
		if _, _, err := c.conn.WriteMsgUnix([]byte(k.text), unix.UnixRights(k.files...), nil); err != nil {
			t.Fatalf("%s: %v", k.reason, err)
		}
	}
	if err := c.Hold(TUN, "good", file); err != nil {
		t.Fatal(err)
	}
	if err := c.Last("a b", netip.AddrPort{}); err == nil {
		t.Error("a name of two words was sent")
	}
	end()
	if held := h.Held(); !slices.Equal(held, []string{"tun good"}) {
		t.Errorf("held are %v", held)
	}
	if len(complaints) != len(cases) {
		t.Errorf("%d complaints about %d things: %v", len(complaints), len(cases), complaints)
	}
	for _, err := range complaints {
		if !errors.Is(err, errMalformed) {
			t.Error(err)
		}
	}
	h.Close()
	if after := open(t); after > before {
		t.Errorf("%d descriptors are open, %d were", after, before)
	}
}

func open(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// TestTooMany holds no more than a bound.
func TestTooMany(t *testing.T) {
	h := &Holder{last: map[string]netip.AddrPort{}}
	at := netip.MustParseAddrPort("10.0.0.1:1")
	for len(h.last) < maxHeld {
		h.last[string(rune('a'+len(h.last)))] = at
	}
	if err := h.do(message{verb: verbLast, subject: subject{name: "one-more"}, last: at}, -1); !errors.Is(err, errMalformed) {
		t.Errorf("one more than %d: %v", maxHeld, err)
	}
	if err := h.do(message{verb: verbLast, subject: subject{name: "a"}, last: at}, -1); err != nil {
		t.Errorf("one that is known: %v", err)
	}
}

// TestGone holds that a client learns when its holder dies, and ends its reading of what
// was left.
func TestGone(t *testing.T) {
	own, other, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(other); err == nil {
		t.Error("a client reads what nobody has left")
	}
}

// FuzzDecode holds that what can be read says the same when it is written again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"ready", "hold tun x", "drop namespace peering-milan", "last x 10.0.0.1:7", "last x -", "last x [fe80::1%2]:9", "hold  x", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		if again := m.encode(); !bytes.Equal(again, b) || len(again) > maxMessage {
			t.Errorf("%q is read as %+v, and written as %q", b, m, again)
		}
	})
}
