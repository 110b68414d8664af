package kubetest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	vitalsPort   = 8443
	apiPort      = 9443
	replicaLimit = 2 * time.Minute // forty of them start on one machine
	// endLimit is the grace that the chart gives to the programs.
	endLimit = 20 * time.Second
)

// Replica is one process of a rack that stands for a pod: with a name and an address of
// its own.
type Replica struct {
	// Name is what a pod's would be; who holds the Lease begins with it.
	Name string
	// Cluster it works in, and Address it listens at.
	Cluster, Address string

	program, log string
	cmd          *exec.Cmd
	// asked is set when somebody wanted it to end, ready when it was ready once. err is
	// how it ended, once ended is closed.
	asked, ready atomic.Bool
	ended        chan struct{}
	err          error
}

// place gives a replica its name and the next address of the range.
func (r *Rack) place(cluster, program string) *Replica {
	r.mu.Lock()
	defer r.mu.Unlock()
	address := netip.MustParsePrefix(rackRange).Addr()
	for range len(r.replicas) + 1 {
		address = address.Next()
	}
	name := program + "-" + randomName()
	replica := &Replica{
		Name: name, Cluster: cluster, Address: address.String(), program: program,
		log: filepath.Join(r.folder, cluster+"-"+name+".log"), ended: make(chan struct{}),
	}
	r.replicas = append(r.replicas, replica)
	return replica
}

// run starts the process of a replica and waits until it is ready. It has a host name of
// its own, as in a pod, and dies with this process.
func (r *Rack) run(ctx context.Context, replica *Replica) error {
	log, err := os.Create(replica.log)
	if err != nil {
		return err
	}
	defer log.Close()
	listen := func(port int) string { return net.JoinHostPort(replica.Address, strconv.Itoa(port)) }
	rooms := "peering,offloading"
	if replica.program == authName {
		rooms = "auth"
	}
	cmd := exec.Command("/bin/sh", "-c", `hostname "$0" && exec "$@"`, replica.Name,
		filepath.Join(filepath.Dir(r.program), "pelago-manager"), "--rooms="+rooms,
		"--metrics-address="+listen(vitalsPort), "--api-address="+listen(apiPort))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "KUBECONFIG=" + r.kubeconfig(replica.Cluster, replica.program), "POD_IP=" + replica.Address, "GOMEMLIMIT=450MiB"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", replica.Name, err)
	}
	replica.cmd = cmd
	go func() {
		replica.err = cmd.Wait()
		close(replica.ended)
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		_ = r.announce(ctx, replica.Cluster) // what the API server does then is what tests look at
	}()
	ctx, cancel := context.WithTimeout(ctx, replicaLimit)
	defer cancel()
	if err := r.until(ctx, func() error { return replica.probe(ctx) }); err != nil {
		return fmt.Errorf("waiting for %s of %s: %w\n%s", replica.Name, replica.Cluster, err, tail(replica.log, 20))
	}
	replica.ready.Store(true)
	return nil
}

// probe asks whether the process is ready, as a kubelet would.
func (p *Replica) probe(ctx context.Context) error {
	if p.over() {
		return errors.New("it has ended")
	}
	// The certificate of probes and metrics is made by the process for itself, so nobody can check it; nothing
	// secret is sent, and the address is one of this test.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(p.Address, strconv.Itoa(vitalsPort))+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(ask)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz says %s", answer.Status)
	}
	return nil
}

// Kill ends the process as kill -9 does: it gets no chance to give anything back.
func (p *Replica) Kill(t testing.TB) {
	t.Helper()
	p.stop(t, syscall.SIGKILL)
}

// Stop ends the process as a kubelet does.
func (p *Replica) Stop(t testing.TB) {
	t.Helper()
	p.stop(t, syscall.SIGTERM)
}

func (p *Replica) stop(t testing.TB, how syscall.Signal) {
	t.Helper()
	p.signal(how)
	if err := p.wait(); err != nil {
		t.Error(err)
	}
}

func (p *Replica) signal(how syscall.Signal) {
	p.asked.Store(true)
	if p.cmd != nil && !p.over() {
		_ = p.cmd.Process.Signal(how)
	}
}

// wait waits for the end of a process that was asked to end.
func (p *Replica) wait() error {
	if p.cmd == nil {
		return nil // it never began
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(endLimit):
		return fmt.Errorf("%s of %s has not ended %s after it was asked to", p.Name, p.Cluster, endLimit)
	}
}

// over reports whether the process has ended.
func (p *Replica) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
