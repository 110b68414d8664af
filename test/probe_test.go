package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// probeCommand, as the first argument of this test binary, makes it a probe: a small
// program that scenarios run on a node to dial, serve and measure from there.
const probeCommand = "probe"

const dialLimit = 3 * time.Second

// reply is what a probe prints.
type reply struct {
	// Dial is open, refused, timeout or another error.
	Dial string `json:",omitempty"`
	// Sent and Received count packets. RTT is the round trip that nine of ten exceed:
	// the link's own time, whatever else the machine does meanwhile.
	Sent, Received int           `json:",omitempty"`
	RTT            time.Duration `json:",omitempty"`
	// Rate is what the other end received, in bit/s.
	Rate float64 `json:",omitempty"`
}

// probe is the program: dial ADDRESS, serve ADDRESS (TCP and UDP, until standard input
// ends), ping ADDRESS COUNT INTERVAL, or send ADDRESS DURATION.
func probe(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("probe: dial|serve|ping|send ADDRESS …")
	}
	var r reply
	var err error
	switch verb, address := args[0], args[1]; verb {
	case "dial":
		r.Dial = dial(address)
	case "serve":
		return serve(address, in, out)
	case "outside":
		return outside(address, in, out)
	case "ping":
		r, err = ping(address, args[2:])
	case "send":
		r, err = send(address, args[2:])
	default:
		err = fmt.Errorf("probe: no verb %s", verb)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(r)
}

func dial(address string) string {
	conn, err := net.DialTimeout("tcp", address, dialLimit)
	var timeout net.Error
	switch {
	case err == nil:
		conn.Close()
		return "open"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return err.Error()
}

// serve echoes UDP packets and counts TCP bytes, which it reports when the sender is
// done. It prints a line when it listens.
func serve(address string, in io.Reader, out io.Writer) error {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	defer packets.Close()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			packets.WriteTo(buffer[:n], from)
		}
	}()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				n, _ := io.Copy(io.Discard, conn)
				fmt.Fprintln(conn, n)
			}()
		}
	}()
	fmt.Fprintln(out, "listening")
	_, err = io.Copy(io.Discard, in)
	return err
}

// ping sends numbered packets at an interval and measures what comes back.
func ping(address string, args []string) (reply, error) {
	if len(args) != 2 {
		return reply{}, errors.New("probe: ping ADDRESS COUNT INTERVAL")
	}
	count, err := strconv.Atoi(args[0])
	if err != nil {
		return reply{}, err
	}
	interval, err := time.ParseDuration(args[1])
	if err != nil {
		return reply{}, err
	}
	conn, err := net.Dial("udp", address)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	begin := time.Now()
	go func() {
		defer func() { conn.SetReadDeadline(time.Now().Add(2 * time.Second)) }() // once all are sent, however long that took
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for range count {
			fmt.Fprint(conn, int64(time.Since(begin))) // a lost one is counted, not sent again
			<-tick.C
		}
	}()
	var trips []time.Duration
	buffer := make([]byte, 64)
	for len(trips) < count {
		n, err := conn.Read(buffer)
		if err != nil {
			break // the deadline: the rest is lost
		}
		sent, err := strconv.ParseInt(string(buffer[:n]), 10, 64)
		if err != nil {
			return reply{}, fmt.Errorf("probe: echo %q: %w", buffer[:n], err)
		}
		trips = append(trips, time.Since(begin)-time.Duration(sent))
	}
	r := reply{Sent: count, Received: len(trips)}
	if len(trips) > 0 {
		slices.Sort(trips)
		r.RTT = trips[len(trips)/10]
	}
	return r, nil
}

// send writes for a while and divides what arrived by the time until it had.
func send(address string, args []string) (reply, error) {
	if len(args) != 1 {
		return reply{}, errors.New("probe: send ADDRESS DURATION")
	}
	length, err := time.ParseDuration(args[0])
	if err != nil {
		return reply{}, err
	}
	conn, err := net.DialTimeout("tcp", address, dialLimit)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	begin := time.Now()
	conn.SetDeadline(begin.Add(length + time.Minute))
	chunk := make([]byte, 16<<10)
	for time.Since(begin) < length {
		if _, err := conn.Write(chunk); err != nil {
			return reply{}, err
		}
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return reply{}, err
	}
	var arrived float64
	if _, err := fmt.Fscan(conn, &arrived); err != nil {
		return reply{}, err
	}
	return reply{Rate: 8 * arrived / time.Since(begin).Seconds()}, nil
}

// probeArgs are the arguments that run the probe on a node.
func probeArgs(t *testing.T, cluster, node string, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{"run", cluster, "--node", node, "--", self, probeCommand}, args...)
}

// from runs a probe on the first node of a cluster.
func from(t *testing.T, s *kubetest.SandboxHandle, cluster string, args ...string) reply {
	t.Helper()
	var r reply
	s.JSON(t, &r, probeArgs(t, cluster, cluster+"-1", args...)...)
	return r
}

// startServer runs a serving probe on the first node of a cluster, with its words, until the test ends.
func startServer(t *testing.T, s *kubetest.SandboxHandle, cluster string, words ...string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := s.Command(ctx, probeArgs(t, cluster, cluster+"-1", words...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close() // the probe ends with its input
		if err := cmd.Wait(); err != nil {
			t.Errorf("serving on %s: %v\n%s", cluster, err, stderr.String())
		}
		cancel()
	})
	line := make([]byte, len("listening\n"))
	if _, err := io.ReadFull(output, line); err != nil {
		t.Fatalf("serving on %s: %v\n%s", cluster, err, stderr.String())
	}
}

// TestProbe tries the probe on itself, so that a wrong measurement is not taken for a
// wrong network.
func TestProbe(t *testing.T) {
	in, end := io.Pipe()
	out, ready := io.Pipe()
	address := freeAddress(t)
	served := make(chan error, 1)
	go func() { served <- probe([]string{"serve", address}, in, ready) }()
	if _, err := io.ReadFull(out, make([]byte, len("listening\n"))); err != nil {
		t.Fatal(err)
	}
	if got := dial(address); got != "open" {
		t.Errorf("dialling a server: %s", got)
	}
	r, err := ping(address, []string{"50", "1ms"})
	if err != nil || r.Received != 50 || r.RTT <= 0 || r.RTT > time.Second {
		t.Errorf("pinging loopback: %+v, %v; want all 50 back at once", r, err)
	}
	r, err = send(address, []string{"50ms"})
	if err != nil || r.Rate < 1e6 {
		t.Errorf("sending over loopback: %+v, %v; want more than a Mbit/s", r, err)
	}
	end.Close()
	if err := <-served; err != nil {
		t.Errorf("serving: %v", err)
	}
	if got := dial(address); got == "open" || got == "timeout" {
		t.Errorf("dialling a closed port: %s, want that it was refused", got)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
