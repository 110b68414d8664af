package kubelet

import (
	"errors"
	"fmt"
	"net"
)

// errNoPort says that all ports are taken.
var errNoPort = errors.New("no port is free")

// book remembers which node had which port: a node that comes back gets its own again.
type book struct {
	first, count int32
	of           map[string]int32
	by           map[int32]string
}

func newBook(first, count int32) book {
	return book{first: first, count: count, of: map[string]int32{}, by: map[int32]string{}}
}

// candidates are the ports to try for a node, in order: the one it had, the one it
// says it has, those nobody had, and those of nodes that are gone.
func (b *book) candidates(node string, said int32, alive func(string) bool) []int32 {
	var list, fresh, old []int32
	if had, ok := b.of[node]; ok {
		list = append(list, had)
	}
	if owner, has := b.by[said]; b.has(said) && (!has || owner == node) {
		list = append(list, said)
	}
	for port := b.first; port < b.first+b.count; port++ {
		switch owner, has := b.by[port]; {
		case !has:
			fresh = append(fresh, port)
		case owner != node && !alive(owner):
			old = append(old, port)
		}
	}
	return append(append(list, fresh...), old...)
}

func (b *book) has(port int32) bool { return port >= b.first && port < b.first+b.count }

// listen takes the first port that can be had, and notes it.
func (b *book) listen(node string, said int32, alive func(string) bool, try func(int32) (net.Listener, error)) (net.Listener, int32, error) {
	var last error
	for _, port := range b.candidates(node, said, alive) {
		l, err := try(port)
		if err != nil {
			last = err
			continue
		}
		b.note(node, port)
		return l, port, nil
	}
	if last == nil {
		last = fmt.Errorf("there are %d", b.count)
	}
	return nil, 0, fmt.Errorf("%w: %w", errNoPort, last)
}

func (b *book) note(node string, port int32) {
	delete(b.by, b.of[node])
	delete(b.of, b.by[port])
	b.of[node], b.by[port] = port, node
}
