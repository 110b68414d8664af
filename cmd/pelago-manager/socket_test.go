package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/serving"
)

// listenVariable makes this test the program that begins anew, with that pause.
const listenVariable = "PELAGO_TEST_LISTEN"

// TestCallsWait holds that who calls while the program begins anew, as it has lost its
// Lease, is answered, and that nobody waits for it while the API server is away.
func TestCallsWait(t *testing.T) {
	if pause := os.Getenv(listenVariable); pause != "" {
		if err := listenAnew(t, pause); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, c := range []struct {
		pause, want, reason string
	}{
		{"0s", "anew\n", "the Lease was lost"},
		{"1ms", "", "the API server did not answer"},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCallsWait$")
		cmd.Env = append(os.Environ(), listenVariable+"="+c.pause)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(waitLimit, func() { _ = cmd.Process.Kill() })
		said := bufio.NewReader(out)
		address, err := said.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		// Its server has ended by now.
		call, err := net.DialTimeout("tcp", strings.TrimSpace(address), waitLimit)
		if err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		if _, err := io.WriteString(in, "go on\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := bufio.NewReader(call).ReadString('\n')
		if answer != c.want {
			t.Errorf("%s: the answer is %q, %v; want %q", c.reason, answer, err, c.want)
		}
		_ = call.Close()
		_ = in.Close()
		_, _ = io.Copy(io.Discard, said)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", c.reason, err)
		}
		late.Stop()
	}
}

// listenAnew listens, ends that, begins anew, and answers whoever has called meanwhile.
func listenAnew(t *testing.T, pause string) error {
	number, begun := os.LookupEnv(socketVariable)
	socket, err := serving.Inherit(number)
	if err != nil || begun && number == "" {
		return err
	}
	listener, err := socket.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		return err
	}
	if begun {
		call, err := listener.Accept()
		if err != nil {
			return err
		}
		defer call.Close()
		_, err = io.WriteString(call, "anew\n")
		return err
	}
	if err := listener.Close(); err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	wait, err := time.ParseDuration(pause)
	if err != nil {
		return err
	}
	return anew(t.Context(), wait, socket)
}
