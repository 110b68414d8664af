package dataplane

import "net/netip"

// Line lets some here call the other end of the tunnel, and the other end call something here:
// clusters speak with each other by it, and not pods. The order in its lists has no meaning.
type Line struct {
	// View is the address here that stands for the other end, of IPv4; none if nobody here
	// calls it.
	View netip.Addr
	// Callers are the addresses here that may call it, at the TCP ports Ports.
	Callers []netip.Addr
	Ports   []uint16
	// Doors are what the other end may call at this one, over TCP, by the port.
	Doors []LineDoor
}

// LineDoor is a port of this end of the tunnel and what it stands for, which sees this node as
// the client.
type LineDoor struct {
	Port uint16
	To   netip.AddrPort
}
