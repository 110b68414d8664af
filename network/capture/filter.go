package capture

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/net/bpf"
)

// Where things are in a frame of Ethernet, in bytes, and what its type says.
const (
	typeAt        = 12
	source4At     = 26
	destination4  = 30
	source6At     = 22
	destination6  = 38
	typeIPv4      = 0x0800
	typeIPv6      = 0x86dd
	maxAddresses  = 2
	wordsOfIPv6   = 4
	lengthOfWord  = 4
	lengthOfField = 2
)

// filter is what the kernel passes on: packets with one of the addresses as source or destination.
func filter(addresses []netip.Addr) ([]bpf.RawInstruction, error) {
	if len(addresses) == 0 || len(addresses) > maxAddresses {
		return nil, fmt.Errorf("%d addresses to look for; a pod has 1 or %d", len(addresses), maxAddresses)
	}
	var program []bpf.Instruction
	for _, a := range addresses {
		kind, places := uint32(typeIPv6), []uint32{source6At, destination6}
		if a.Is4() {
			kind, places = typeIPv4, []uint32{source4At, destination4}
		} else if !a.Is6() || a.Is4In6() || a.Zone() != "" {
			return nil, fmt.Errorf("%q is not the address of a pod", a)
		}
		for _, at := range places {
			program = append(program, has(kind, at, a.AsSlice())...)
		}
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{}))
	if err != nil {
		return nil, fmt.Errorf("making the filter for %v: %w", addresses, err)
	}
	return raw, nil
}

// has accepts a packet that is of a kind and has an address at a place; with any other the
// program goes on.
func has(kind, at uint32, address []byte) []bpf.Instruction {
	type test struct{ offset, size, value uint32 }
	tests := []test{{typeAt, lengthOfField, kind}}
	for i := 0; i < len(address); i += lengthOfWord {
		tests = append(tests, test{at + uint32(i), lengthOfWord, binary.BigEndian.Uint32(address[i:])})
	}
	program := make([]bpf.Instruction, 0, 2*(1+wordsOfIPv6)+1)
	for i, t := range tests {
		left := uint8(2 * (len(tests) - i - 1)) // instructions of the tests that follow
		program = append(program,
			bpf.LoadAbsolute{Off: t.offset, Size: int(t.size)},
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: t.value, SkipFalse: left + 1})
	}
	return append(program, bpf.RetConstant{Val: maxPacket})
}

// judge holds of a frame what the filter does.
func judge(program []bpf.RawInstruction) (func(frame []byte) bool, error) {
	instructions, all := bpf.Disassemble(program)
	vm, err := bpf.NewVM(instructions)
	if !all || err != nil {
		return nil, fmt.Errorf("reading the filter again: %w", err)
	}
	return func(frame []byte) bool {
		n, err := vm.Run(frame)
		return err == nil && n > 0
	}, nil
}
