package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/internet"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// route is the router between clusters: SOCKET FILE.
func route(args []string) error {
	var start internet.Config
	text, err := os.ReadFile(args[1])
	if err == nil {
		err = json.Unmarshal(text, &start)
	}
	if err != nil {
		return err
	}
	return internet.Serve(context.Background(), args[0], start, slog.New(slog.DiscardHandler))
}

// listenAs tells whoever connects its name and whom it sees: NAME [ADDRESS].
func listenAs(args []string) error {
	address := "[::]:7000"
	if len(args) > 1 {
		address = args[1]
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		seen, err := netip.ParseAddrPort(conn.RemoteAddr().String())
		if err == nil {
			_, _ = fmt.Fprintf(conn, "%s sees %s", args[0], seen.Addr().Unmap())
		}
		conn.Close()
	}
}

// dialFrom prints what a listener says: ADDRESS.
func dialFrom(args []string) error {
	answer, err := ask(args[0])
	fmt.Print(answer)
	return err
}

// ask returns what the listener at an address says; silence for a second is an
// error.
func ask(address string) (string, error) {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(address, "7000"), time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// wires is a sandbox whose machines are real and run no Kubernetes.
type wires struct {
	*Sandbox
	internet *machine.Machine
	machines map[string]*machine.Machine
}

// startWires starts rome with two nodes, milan behind NAT with one, and athens
// with one; on every node and control machine something listens.
func startWires(t *testing.T) *wires {
	t.Helper()
	clusters := append(wanted(t, 2, "rome"), wanted(t, 1, "milan", "athens")...)
	clusters[1].BehindNAT = true
	s, err := Prepare(randomName(t), config.Sandbox{Clusters: clusters})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.installProgram(); err != nil {
		t.Fatal(err)
	}
	w := &wires{Sandbox: s, machines: map[string]*machine.Machine{}}
	w.complete(t)
	return w
}

// complete starts and wires what is not there yet, as up does.
func (w *wires) complete(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var err error
	if w.internet, err = w.startInternet(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.Clusters {
		router, bridge, err := c.startRouter(ctx, w.internet)
		if err != nil {
			t.Fatal(err)
		}
		for number := range c.Nodes + 1 {
			spec := c.machineSpec(c.ControlName())
			if number > 0 {
				spec = c.nodeSpec(number)
				spec.Links = nil // whatever packages this host has
			}
			m, err := machine.Start(ctx, spec)
			if err == nil {
				err = errors.Join(c.attach(router, bridge, m, number), c.routePods(ctx, m, number),
					m.Ensure(ctx, machine.Unit{Name: "listen", Args: []string{m.Program, "test-listen", m.Name}}))
			}
			if err != nil {
				t.Fatalf("starting %s: %v", spec.Name, err)
			}
			w.machines[m.Name] = m
		}
	}
}

// from asks a listener from a machine, or from the host.
func (w *wires) from(t *testing.T, name, address string) (string, error) {
	t.Helper()
	if name == "host" {
		return ask(address)
	}
	ctx, m := context.Background(), w.machines[name]
	unit := machine.Unit{
		Name: "dial", Once: true, Args: []string{m.Program, "test-dial", address},
		Env: []string{"GORACE=atexit_sleep_ms=0"}, // else each takes a second
	}
	log := filepath.Join(m.Dir, "log", "dial.log")
	_ = os.Remove(log)
	if err := m.Put(ctx, unit); err != nil {
		t.Fatal(err)
	}
	var exit int
	err := within(ctx, time.Minute, "the dialler", func(ctx context.Context) error {
		all, err := m.Units(ctx)
		for _, u := range all {
			if u.Name == unit.Name && u.PID != 0 {
				err = errors.New("still runs")
			} else if u.Name == unit.Name {
				exit = u.Exit
			}
		}
		return err
	})
	text, readErr := os.ReadFile(log)
	if err := errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	if exit != 0 {
		return "", errors.New(string(text))
	}
	return string(text), nil
}

// addressOf is a machine's address of a family.
func (w *wires) addressOf(t *testing.T, name string, six bool) string {
	t.Helper()
	at := 0
	if six {
		at = 1
	}
	for _, c := range w.Clusters {
		if name == c.ControlName() {
			return c.Net.Control().Addresses()[at].String()
		}
		if number, err := c.number(name); err == nil {
			return c.Net.Node(number).Addresses()[at].String()
		}
	}
	t.Fatalf("there is no machine %s", name)
	return ""
}

// anyone is seen where it is open by which address.
const anyone = "anyone"

// check asks for an answer to an IPv4 address, over both families, or for
// silence if want is empty.
func (w *wires) check(t *testing.T, reason, from, to, want string) {
	t.Helper()
	for _, six := range []bool{false, true} {
		address := w.addressOf(t, to, six)
		if want == "" {
			got, err := w.from(t, from, address)
			if err == nil || strings.Contains(err.Error(), syscall.ECONNREFUSED.Error()) {
				t.Errorf("%s: %s reaches %s (%s): %q, %v", reason, from, to, address, got, err)
			}
			continue
		}
		var got string
		err := within(context.Background(), time.Minute, "an answer", func(context.Context) (err error) {
			got, err = w.from(t, from, address)
			return err
		})
		whom := to + " sees " + want
		if err != nil || want != anyone && !six && got != whom || !strings.HasPrefix(got, to+" sees ") {
			// The rest would wait as long, each.
			t.Fatalf("%s: %s to %s (%s) has the answer %q, %v, want %q", reason, from, to, address, got, err, whom)
		}
	}
}

// hostHas tells whether the host has its interface of the sandbox.
func (w *wires) hostHas(t *testing.T) bool {
	t.Helper()
	_, err := net.InterfaceByName(hostInterface(w.Index))
	return err == nil
}
