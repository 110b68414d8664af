package dataplane

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What package nftables cannot read, or not without understanding every expression, is
// read here: the generation, names, handles and comments.

// tableRead is the structure of our table in the kernel.
type tableRead struct {
	there   bool
	foreign bool
	// lines are as those of table.structure.
	lines []string
	// handles of rules, in their order, and what stands for them, by chain.
	handles []uint64
	rules   map[string][]string
	parts   []part
	sets    []setRead
}

// part is what can be removed by itself.
type part struct {
	name, line string
	remove     func(*batch)
}

type setRead struct {
	name     string
	of       setKey
	interval bool
}

// ask sends a question and returns the attributes of each answer.
func (f *filter) ask(message int, flags int, attrs ...*nl.RtAttr) ([]attributes, error) {
	const attempts = 5 // of a list that others change while it is read
	for try := 1; ; try++ {
		req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: f.socket}
		req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_INET})
		for _, a := range attrs {
			req.AddData(a)
		}
		answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		if errors.Is(err, nl.ErrDumpInterrupted) && try < attempts {
			continue
		}
		if err != nil {
			return nil, err
		}
		out := make([]attributes, 0, len(answers))
		for _, a := range answers {
			out = append(out, parse(a[nl.SizeofNfgenmsg:]))
		}
		return out, nil
	}
}

// attributes are those of a netlink message by their numbers. A number that is there more
// than once is in list.
type attributes struct {
	by   map[uint16][]byte
	list [][]byte
}

func parse(b []byte) attributes {
	a := attributes{by: map[uint16][]byte{}}
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if length < unix.SizeofNlAttr || length > len(b) {
			return a
		}
		value := b[unix.SizeofNlAttr:length]
		a.by[kind] = value
		a.list = append(a.list, value)
		b = b[min(len(b), (length+3)&^3):]
	}
	return a
}

func (a attributes) text(kind uint16) string { return string(bytes.TrimRight(a.by[kind], "\x00")) }

func (a attributes) u32(kind uint16) uint32 {
	if v := a.by[kind]; len(v) >= 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (a attributes) u64(kind uint16) uint64 {
	if v := a.by[kind]; len(v) >= 8 {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func name(kind int, text string) *nl.RtAttr { return nl.NewRtAttr(kind, nl.ZeroTerminated(text)) }

// generation grows with each transaction of anybody in the namespace.
func (f *filter) generation() (uint32, error) {
	answers, err := f.ask(unix.NFT_MSG_GETGEN, 0)
	if err != nil {
		return 0, fmt.Errorf("asking for the generation: %w", err)
	}
	if len(answers) == 0 {
		return 0, errors.New("asking for the generation: no answer")
	}
	return answers[0].u32(unix.NFTA_GEN_ID), nil
}

// read reads the structure of our table.
func (f *filter) read() (tableRead, error) {
	var r tableRead
	answers, err := f.ask(unix.NFT_MSG_GETTABLE, 0, name(unix.NFTA_TABLE_NAME, tableName))
	if errors.Is(err, unix.ENOENT) || len(answers) == 0 && err == nil {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("reading the table: %w", err)
	}
	r.there = true
	r.lines = append(r.lines, fmt.Sprintf("flags %d", answers[0].u32(unix.NFTA_TABLE_FLAGS)))
	for _, read := range []func(*tableRead) error{f.readChains, f.readRules, f.readSets, f.readCounters} {
		if err := read(&r); err != nil {
			return r, err
		}
	}
	slices.Sort(r.lines)
	return r, nil
}

func (f *filter) readChains(r *tableRead) error {
	answers, err := f.ask(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP)
	if err != nil {
		return fmt.Errorf("reading chains: %w", err)
	}
	for _, a := range answers {
		if a.text(unix.NFTA_CHAIN_TABLE) != tableName {
			continue
		}
		at := parse(a.by[unix.NFTA_CHAIN_HOOK])
		c := chain{
			name: a.text(unix.NFTA_CHAIN_NAME), kind: chainKind(a.text(unix.NFTA_CHAIN_TYPE)),
			priority: int32(at.u32(unix.NFTA_HOOK_PRIORITY)), drop: a.u32(unix.NFTA_CHAIN_POLICY) == 0,
		}
		for h, k := range hooks {
			if uint32(*k) == at.u32(unix.NFTA_HOOK_HOOKNUM) {
				c.hook = h
			}
		}
		if a.by[unix.NFTA_CHAIN_HOOK] == nil {
			c = chain{name: c.name}
		}
		line := "chain " + c.name + " " + c.text()
		r.lines = append(r.lines, line)
		r.parts = append(r.parts, part{c.name, line, func(b *batch) {
			b.conn.DelChain(&nftables.Chain{Name: c.name, Table: b.table})
		}})
	}
	return nil
}

func (f *filter) readRules(r *tableRead) error {
	answers, err := f.ask(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, name(unix.NFTA_RULE_TABLE, tableName))
	if err != nil {
		return fmt.Errorf("reading rules: %w", err)
	}
	r.rules = map[string][]string{}
	for _, a := range answers {
		if a.text(unix.NFTA_RULE_TABLE) != tableName {
			continue
		}
		chain := a.text(unix.NFTA_RULE_CHAIN)
		comment, _ := userdata.GetString(a.by[unix.NFTA_RULE_USERDATA], userdata.TypeComment)
		r.lines = append(r.lines, fmt.Sprintf("rule %s %d %s", chain, len(r.rules[chain]), comment))
		r.handles = append(r.handles, a.u64(unix.NFTA_RULE_HANDLE))
		r.rules[chain] = append(r.rules[chain], comment)
	}
	return nil
}

func (f *filter) readSets(r *tableRead) error {
	answers, err := f.ask(unix.NFT_MSG_GETSET, unix.NLM_F_DUMP, name(unix.NFTA_SET_TABLE, tableName))
	if err != nil {
		return fmt.Errorf("reading sets: %w", err)
	}
	for _, a := range answers {
		if a.text(unix.NFTA_SET_TABLE) != tableName {
			continue
		}
		flags, key, data := a.u32(unix.NFTA_SET_FLAGS), a.u32(unix.NFTA_SET_KEY_LEN), a.u32(unix.NFTA_SET_DATA_LEN)
		s := set{name: a.text(unix.NFTA_SET_NAME), v4: key == 4 || key == 4+portBytes, interval: flags&unix.NFT_SET_INTERVAL != 0}
		switch key {
		case 2:
			s.of = portKey
		case 4 + portBytes, 16 + portBytes:
			s.of = pairKey
		}
		if flags&unix.NFT_SET_MAP != 0 {
			s.data = setData(fmt.Sprintf("of %d bytes", data))
			if data == 4 {
				s.data = markData
			}
		}
		if flags&unix.NFT_SET_EVAL != 0 {
			s.most = parse(a.by[unix.NFTA_SET_DESC]).u32(unix.NFTA_SET_DESC_SIZE)
		}
		line := s.text()
		r.lines = append(r.lines, line)
		if s.most == 0 {
			r.sets = append(r.sets, setRead{s.name, s.of, s.interval})
		}
		r.parts = append(r.parts, part{s.name, line, func(b *batch) {
			b.conn.DelSet(&nftables.Set{Name: s.name, Table: b.table})
		}})
	}
	return nil
}

func (f *filter) readCounters(r *tableRead) error {
	answers, err := f.counters()
	if err != nil {
		return err
	}
	for _, a := range answers {
		counter := a.text(unix.NFTA_OBJ_NAME)
		line := "counter " + counter
		r.lines = append(r.lines, line)
		r.parts = append(r.parts, part{"", line, func(b *batch) {
			b.conn.DeleteObject(&nftables.CounterObj{Table: b.table, Name: counter})
		}})
	}
	return nil
}

// counters returns the counters of our table.
func (f *filter) counters() ([]attributes, error) {
	answers, err := f.ask(unix.NFT_MSG_GETOBJ, unix.NLM_F_DUMP, name(unix.NFTA_OBJ_TABLE, tableName))
	if err != nil {
		return nil, fmt.Errorf("reading counters: %w", err)
	}
	return slices.DeleteFunc(answers, func(a attributes) bool {
		return a.text(unix.NFTA_OBJ_TABLE) != tableName || a.u32(unix.NFTA_OBJ_TYPE) != counterObject
	}), nil
}

func (f *filter) readElements(s setRead) (map[element]struct{}, error) {
	answers, err := f.ask(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP,
		name(unix.NFTA_SET_ELEM_LIST_TABLE, tableName), name(unix.NFTA_SET_ELEM_LIST_SET, s.name))
	if err != nil {
		return nil, fmt.Errorf("reading the elements of %s: %w", s.name, err)
	}
	var list []kernelElement
	for _, a := range answers {
		for _, raw := range parse(a.by[unix.NFTA_SET_ELEM_LIST_ELEMENTS]).list {
			e := parse(raw)
			list = append(list, kernelElement{
				key:   parse(e.by[unix.NFTA_SET_ELEM_KEY]).by[unix.NFTA_DATA_VALUE],
				value: parse(e.by[unix.NFTA_SET_ELEM_DATA]).by[unix.NFTA_DATA_VALUE],
				end:   e.u32(unix.NFTA_SET_ELEM_FLAGS)&unix.NFT_SET_ELEM_INTERVAL_END != 0,
			})
		}
	}
	return decode(s, list), nil
}
