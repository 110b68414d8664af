package reader

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// place is where a program listens.
type place struct {
	// target as gRPC takes it.
	target string
	// local: nobody on a network can listen or answer, so TLS may be left out.
	local bool
}

// parse reads an address: unix:///path, or host:port.
func parse(address string) (place, error) {
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		if !filepath.IsAbs(path) {
			return place{}, fmt.Errorf("%.100q has no absolute path; write unix:///path", address)
		}
		return place{target: "unix://" + path, local: true}, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.ContainsAny(host, "/%") {
		return place{}, fmt.Errorf("%.100q is neither unix:///path nor HOST:PORT", address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return place{}, fmt.Errorf("%.100q has no port from 1 to 65535", address)
	}
	ip := net.ParseIP(host)
	return place{target: "dns:///" + address, local: ip != nil && ip.IsLoopback()}, nil
}

// errPlain is what is wrong with an address that strangers may listen at.
var errPlain = errors.New("an address that is neither unix:///path nor of loopback needs TLS: a folder with ca.crt")
