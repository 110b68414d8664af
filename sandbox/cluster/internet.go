package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pelago-dev/pelago/sandbox/internet"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// InternetCommand is the hidden command that runs the router between clusters;
// its arguments are its socket and the file of its first configuration.
const InternetCommand = "internet"

const internetName = "internet"

func (s *Sandbox) internetDir() string    { return filepath.Join(s.Dir(), internetName) }
func (s *Sandbox) internetSocket() string { return filepath.Join(s.internetDir(), "router.sock") }

// InternetConfig is the network between the clusters as it should be.
func (s *Sandbox) InternetConfig() internet.Config {
	config := internet.Config{Links: s.Links}
	for _, c := range s.Clusters {
		config.Host = internet.Host{Interface: "host", Prefixes: c.Transit.Host().Hosts()}
		port := internet.Port{Cluster: c.Name, Interface: c.port(), Prefixes: c.Net.Prefix().Prefixes()}
		if c.BehindNAT {
			port.Private = port.Prefixes
			port.Prefixes = c.Transit.NAT(c.Index).Hosts()
			port.Gateway = c.Transit.NAT(c.Index).Addresses()
		}
		config.Ports = append(config.Ports, port)
	}
	return config
}

// startInternet starts the machine between the clusters, wired to the host and
// with a bridge or a port for every cluster, and its router.
func (s *Sandbox) startInternet(ctx context.Context) (*machine.Machine, error) {
	if err := hostKernel.prepare(); err != nil {
		return nil, err
	}
	c := &Cluster{Sandbox: s.Name, Dir: s.Dir(), Program: filepath.Join(s.Dir(), "bin", "pelago-sandbox")}
	m, err := machine.Start(ctx, c.machineSpec(internetName))
	if err != nil {
		return nil, err
	}
	if err := s.wireHost(m); err != nil {
		return nil, err
	}
	for _, c := range s.Clusters {
		if c.BehindNAT {
			_, err = c.startNAT(ctx, m)
		} else {
			err = c.bridge(m, c.port())
		}
		if err != nil {
			return nil, err
		}
	}
	return m, s.configureInternet(ctx, m)
}

// configureInternet makes the router what it should be, starting it if need be.
func (s *Sandbox) configureInternet(ctx context.Context, m *machine.Machine) error {
	config := s.InternetConfig()
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the internet's configuration: %w", err)
	}
	file := filepath.Join(s.internetDir(), "router.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return fmt.Errorf("writing the internet's configuration: %w", err)
	}
	unit := machine.Unit{Name: "router", Args: []string{m.Program, InternetCommand, s.internetSocket(), file}}
	if err := m.Ensure(ctx, unit); err != nil {
		return err
	}
	return within(ctx, 15*time.Second, "the router between clusters", func(ctx context.Context) error {
		return s.router().Set(ctx, config)
	})
}

func (s *Sandbox) router() internet.Client { return internet.Client{Socket: s.internetSocket()} }

// startNAT starts the NAT box of a cluster, with its rules and wires.
func (c *Cluster) startNAT(ctx context.Context, internetMachine *machine.Machine) (*machine.Machine, error) {
	m, err := machine.Start(ctx, c.machineSpec(c.NATName()))
	if err != nil {
		return nil, err
	}
	if err := c.wireNAT(internetMachine, m); err != nil {
		return nil, err
	}
	if err := c.bridge(m, lan); err != nil {
		return nil, err
	}
	rules := filepath.Join(c.machineDir(c.NATName()), "nat.nft")
	text := internet.NATRuleset(lan, wan, c.Transit.Host().Hosts())
	if err := writeFiles(map[string]string{rules: text}); err != nil {
		return nil, err
	}
	return m, m.Run(ctx, machine.Unit{Name: "nat", Args: []string{"/usr/sbin/nft", "-f", rules}})
}

// SetLink changes the link between two clusters with change, stores it, and
// returns when it is in force.
func (s *Sandbox) SetLink(ctx context.Context, a, b string, change func(*internet.Link)) error {
	release, err := s.Lock()
	if err != nil {
		return err
	}
	defer release()
	if err := s.refresh(); err != nil {
		return err
	}
	for _, name := range []string{a, b} {
		if _, err := s.Cluster(name); err != nil {
			return err
		}
	}
	if a == b {
		return fmt.Errorf("a link has two ends; %s was named twice", a)
	}
	if a > b {
		a, b = b, a
	}
	links := slices.Clone(s.Links)
	at := slices.IndexFunc(links, func(l internet.Link) bool { return l.A == a && l.B == b })
	if at < 0 {
		links = append(links, internet.Link{A: a, B: b})
		at = len(links) - 1
	}
	change(&links[at])
	if links[at] == (internet.Link{A: a, B: b}) {
		links = slices.Delete(links, at, at+1)
	}
	before := s.Links
	s.Links = links
	if err := s.InternetConfig().Validate(); err != nil {
		s.Links = before
		return err
	}
	m, up, err := machine.Load(s.internetDir())
	if err != nil || !up {
		return fmt.Errorf("the internet of sandbox %s does not run; run: pelago-sandbox up --name %s", s.Name, s.Name)
	}
	if err := s.configureInternet(ctx, m); err != nil {
		return err
	}
	return s.save()
}

// Stats are the counters of the internet.
func (s *Sandbox) Stats(ctx context.Context) (internet.Stats, error) { return s.router().Stats(ctx) }

// HostPrefixes are the host's own addresses in the sandbox.
func (c *Cluster) HostPrefixes() []netip.Prefix { return c.Transit.Host().Hosts() }
