package dataplane

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	mnetlink "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

// elementCheck is how long the elements of sets may go unread while others change
// nftables, and nobody watches or has seen a change of ours.
const elementCheck = 4 * time.Second

// filter is our table of nftables in one namespace.
//
// It remembers what it has written and nftables' generation at that time. While that is
// the same nobody has changed anything, and nothing is read. If it is not, structure is
// read, whose every rule has a handle that no other will have; elements are read only
// when they may have been changed, as there may be many.
type filter struct {
	at     *os.File
	name   string
	conn   *nftables.Conn
	socket *nl.SocketHandle
	port   atomic.Uint32
	known  *knownTable
	watch  *watcher // nil while nobody watches
	// had is the structure that apply found.
	had []string
	// failed is that the last change was refused: then nothing is relied upon that may be the reason.
	failed bool
}

// knownTable is our table as it was at a generation.
type knownTable struct {
	generation uint32
	read       tableRead
	elements   map[string]map[element]struct{}
	// checked is when the elements were last read or written as a whole.
	checked time.Time
}

func (f *filter) open() error {
	if f.conn != nil {
		return nil
	}
	err := netns.In(f.at, func() error {
		conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *mnetlink.Conn) error {
			return errors.Join(c.SetWriteBuffer(wholeBatch), c.SetReadBuffer(wholeBatch), f.rememberPort(c))
		}))
		if err != nil {
			return err
		}
		socket, err := nl.Subscribe(unix.NETLINK_NETFILTER) // to nothing: it asks only
		if err != nil {
			return errors.Join(err, conn.CloseLasting())
		}
		f.conn, f.socket = conn, &nl.SocketHandle{Socket: socket}
		return nil
	})
	if err != nil {
		return fmt.Errorf("opening nftables of %s: %w", f.name, err)
	}
	return nil
}

// wholeBatch is what buffers have to hold: a whole transaction, and an answer to each of its messages.
const wholeBatch = 64 << 20

// rememberPort notes the number by which the kernel says whose a change was.
func (f *filter) rememberPort(c *mnetlink.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		at, err := unix.Getsockname(int(fd))
		if at, ok := at.(*unix.SockaddrNetlink); ok {
			f.port.Store(at.Pid)
		}
		inner = err
	})
	return errors.Join(err, inner)
}

func (f *filter) close() {
	if f.conn != nil {
		_ = f.conn.CloseLasting()
		f.socket.Close()
		f.conn, f.socket = nil, nil
	}
	f.known = nil
}

// apply makes our table what is wanted, in one transaction; nil is none. If ending, where it is not nil,
// says so of the structure that there is, the sign is in it that connections are to be ended. It reports
// whether anything was written.
func (f *filter) apply(wanted *table, ending func(had []string) bool) (bool, error) {
	wrote, err := f.tryApply(wanted, ending)
	f.failed = err != nil
	if err != nil {
		f.close() // what is left in its sockets belongs to no later question
		return wrote, fmt.Errorf("applying table inet %s in %s: %w", tableName, f.name, err)
	}
	return wrote, nil
}

func (f *filter) tryApply(wanted *table, ending func(had []string) bool) (bool, error) {
	if err := f.open(); err != nil {
		return false, err
	}
	before, err := f.generation()
	if err != nil {
		return false, err
	}
	have, err := f.current(before)
	if err != nil {
		return false, err
	}
	f.had = have.read.lines
	if ending != nil && ending(f.had) {
		wanted = wanted.signed()
	}
	b := &batch{conn: f.conn, table: &nftables.Table{Name: tableName, Family: nftables.TableFamilyINet}}
	switch {
	case wanted == nil && !have.read.there:
		return false, nil
	case wanted == nil:
		b.conn.DelTable(b.table)
		b.changes++
		have = &knownTable{elements: map[string]map[element]struct{}{}}
	default:
		if !slices.Equal(have.read.lines, wanted.structure()) || have.read.foreign {
			b.rewrite(have, wanted, have.read.foreign || f.failed)
		}
		if err := b.elements(have, wanted); err != nil {
			return false, err
		}
	}
	if b.changes == 0 {
		have.generation = before
		f.known = have
		return false, nil
	}
	if err := f.conn.Flush(); err != nil {
		return true, err
	}
	return true, f.remember(have, wanted, before, b.rewritten)
}

// current is our table as it is in the kernel.
func (f *filter) current(generation uint32) (*knownTable, error) {
	touched := f.watch != nil && f.watch.touched.Swap(false)
	if f.known != nil && f.known.generation == generation && !touched {
		return f.known, nil
	}
	read, err := f.read()
	if err != nil {
		return nil, err
	}
	now := &knownTable{read: read, elements: map[string]map[element]struct{}{}, checked: time.Now()}
	if f.known != nil {
		// A rule whose handle is another one may be another one.
		now.read.foreign = !slices.Equal(f.known.read.handles, read.handles)
		fresh := f.watch != nil && !touched && time.Since(f.known.checked) < elementCheck
		if fresh && !now.read.foreign {
			now.elements, now.checked = f.known.elements, f.known.checked
			return now, nil
		}
	}
	for _, s := range read.sets {
		if now.elements[s.name], err = f.readElements(s); err != nil {
			return nil, err
		}
	}
	return now, nil
}

// remember notes what was written, unless somebody else has written at the same time.
func (f *filter) remember(have *knownTable, wanted *table, before uint32, rewritten bool) error {
	f.known = nil
	after, err := f.generation()
	if err != nil || after != before+1 {
		return err
	}
	known := &knownTable{generation: after, read: have.read, elements: map[string]map[element]struct{}{}, checked: have.checked}
	if wanted != nil {
		for _, s := range wanted.sets {
			known.elements[s.name] = s.elements
		}
	}
	if rewritten || wanted == nil {
		known.checked = time.Now()
		if known.read, err = f.read(); err != nil {
			return err
		}
		if again, err := f.generation(); err != nil || again != after {
			return err
		}
	}
	f.known = known
	return nil
}

// batch is one transaction.
type batch struct {
	conn      *nftables.Conn
	table     *nftables.Table
	changes   int
	rewritten bool
	made      uint32 // sets of this transaction
}

// rewrite makes the structure what is wanted. Chains with all their rules, sets and counters that
// are as they should be stay, so that elements and counts do, of rules with limits too; with whole the
// rules are all written again. Connections keep their translation, which is theirs and not the rules'.
func (b *batch) rewrite(have *knownTable, wanted *table, whole bool) {
	b.rewritten = true
	b.conn.AddTable(b.table)
	lines := map[string]bool{}
	for _, line := range wanted.structure() {
		lines[line] = true
	}
	stay := b.flush(have.read, wanted, lines, whole)
	present := map[string]bool{}
	for _, part := range have.read.parts {
		if lines[part.line] {
			present[part.line] = true
			continue
		}
		part.remove(b)
		delete(have.elements, part.name)
	}
	for _, s := range wanted.sets {
		if !present[s.text()] {
			b.mustAddSet(s)
		}
	}
	for _, name := range wanted.counters {
		if !present["counter "+name] {
			b.conn.AddObj(&nftables.CounterObj{Table: b.table, Name: name})
		}
	}
	for _, c := range wanted.chains { // all of them before the rules that lead from one to another
		if !present["chain "+c.name+" "+c.text()] {
			b.conn.AddChain(b.chain(c))
		}
	}
	for _, c := range wanted.chains {
		if stay[c.name] {
			continue
		}
		for _, r := range c.rules {
			b.conn.AddRule(&nftables.Rule{
				Table: b.table, Chain: b.chain(c), Exprs: r.exprs,
				UserData: userdata.AppendString(nil, userdata.TypeComment, r.print()),
			})
		}
	}
	b.changes++
}

// flush removes the rules of chains that do not stay, and says which do. What is to be of another kind
// under the same name can only be removed if no rule is left.
func (b *batch) flush(read tableRead, wanted *table, lines map[string]bool, whole bool) map[string]bool {
	names := map[string]bool{}
	for _, s := range wanted.sets {
		names[s.name] = true
	}
	stay := map[string]bool{}
	for _, c := range wanted.chains {
		names[c.name] = true
		stay[c.name] = slices.Equal(read.rules[c.name], c.prints())
	}
	for _, part := range read.parts {
		whole = whole || names[part.name] && !lines[part.line]
	}
	if whole {
		b.conn.FlushTable(b.table)
		return nil
	}
	for name := range read.rules {
		if !stay[name] {
			b.conn.FlushChain(&nftables.Chain{Name: name, Table: b.table})
		}
	}
	return stay
}

var hooks = map[hook]*nftables.ChainHook{
	prerouting: nftables.ChainHookPrerouting, input: nftables.ChainHookInput,
	forwarding: nftables.ChainHookForward, output: nftables.ChainHookOutput, postrouting: nftables.ChainHookPostrouting,
}

func (b *batch) chain(c chain) *nftables.Chain {
	if c.hook == "" {
		return &nftables.Chain{Name: c.name, Table: b.table}
	}
	policy := nftables.ChainPolicyAccept
	if c.drop {
		policy = nftables.ChainPolicyDrop
	}
	return &nftables.Chain{
		Name: c.name, Table: b.table, Type: nftables.ChainType(c.kind), Hooknum: hooks[c.hook],
		Priority: nftables.ChainPriorityRef(nftables.ChainPriority(c.priority)), Policy: &policy,
	}
}

// mustAddSet makes a set. Its number is of this transaction: the library would take one that
// all of a process's transactions count, without a lock.
func (b *batch) mustAddSet(s *set) {
	b.made++
	k := b.set(s)
	k.ID = b.made
	if err := b.conn.AddSet(k, nil); err != nil {
		panic(err) // of anonymous sets only
	}
}
