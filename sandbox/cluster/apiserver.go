package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// APIServer runs a bare etcd and API server on loopback, as an ordinary user,
// with all files below dir, until ctx ends. Ready is called once, with the
// administrator's kubeconfig and the API server's PID. No controller runs: pods
// stay unscheduled and namespaces do not finish terminating.
func APIServer(ctx context.Context, kube, dir string, ready func(kubeconfig string, pid int)) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	wanted, err := config.Default([]string{"test"}, 1)
	if err != nil {
		return err
	}
	// Services of both families can be tried.
	wanted.Clusters[0].ServiceRanges = []netip.Prefix{netip.MustParsePrefix(config.DefaultServiceRangeV4), netip.MustParsePrefix(config.DefaultServiceRangeV6)}
	c := &Cluster{Cluster: wanted.Clusters[0], Dir: dir, Kube: kube, api: ports[0]}
	if err := c.credentials(); err != nil {
		return err
	}
	database := c.unit("etcd", "etcd",
		"--data-dir="+filepath.Join(dir, "etcd"),
		"--listen-client-url=https://"+ports[1], "--listen-peer-url=http://"+ports[2],
		"--cert-file="+c.pki("etcd.crt"), "--key-file="+c.pki("etcd.key"), "--trusted-ca-file="+c.pki("ca.crt"))
	_, port, _ := net.SplitHostPort(ports[0])
	server := c.unit("kube-apiserver", "kube-apiserver", c.apiServerFlags(
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--etcd-servers=https://"+ports[1],
		// Without controllers no token would ever be made for a pod.
		"--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none")...)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all []*exec.Cmd
	for _, unit := range []machine.Unit{database, server} {
		command, err := runUnit(ctx, unit, dir, cancel)
		if err != nil {
			return err
		}
		all = append(all, command)
	}
	if err := c.awaitAPI(ctx); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	ready(c.Kubeconfig(), all[1].Process.Pid)
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// runUnit starts a program that dies with this one, and ends ctx when it ends.
func runUnit(ctx context.Context, unit machine.Unit, dir string, end context.CancelCauseFunc) (*exec.Cmd, error) {
	log, err := os.Create(filepath.Join(dir, unit.Name+".log"))
	if err != nil {
		return nil, fmt.Errorf("opening log: %w", err)
	}
	defer log.Close()
	command := exec.CommandContext(ctx, unit.Args[0], unit.Args[1:]...)
	command.Stdout, command.Stderr = log, log
	// Killed as well when this program is killed without a chance to stop it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", unit.Name, err)
	}
	go func() {
		err := command.Wait()
		end(fmt.Errorf("%s ended: %w; see %s", unit.Name, err, log.Name()))
	}()
	return command, nil
}

// awaitAPI waits until the API server says that it is ready.
func (c *Cluster) awaitAPI(ctx context.Context) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	return within(ctx, startLimit, "the API server of "+c.Name, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

// freePorts finds free TCP ports of loopback. They are below those that the kernel gives
// to whoever asks for any: one of those may be somebody else's before it is listened on.
func freePorts(count int) ([]string, error) {
	var addresses []string
	for tries := 0; len(addresses) < count; tries++ {
		address := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(10000))
		listener, err := net.Listen("tcp4", address)
		if err != nil && tries > 100 {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		if err != nil {
			continue
		}
		defer listener.Close()
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// Alive tells whether a process still runs.
func Alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, ok := strings.Cut(string(text), ") ")
	return ok && !strings.HasPrefix(rest, "Z")
}
