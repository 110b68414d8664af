package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/pelago-dev/pelago/internal/vitals"
	"github.com/pelago-dev/pelago/network/agent"
	"github.com/pelago-dev/pelago/network/dns"
	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/tunnel"
)

const (
	// holderFile is where the second process finds its way to the first one.
	holderFile = 3
	// requestLimit bounds the requests that have no other bound.
	requestLimit = 30 * time.Second
	// resolverFile says where the cluster's DNS is.
	resolverFile = "/etc/resolv.conf"
)

// work is the second process, which may follow another one at once.
func work(ctx context.Context, s settings, follows bool) error {
	logger, err := newLogger(s.level)
	if err != nil {
		return err
	}
	klog.SetLogger(logger.WithName("kubernetes"))
	keeper, left, err := holder.Open(os.NewFile(holderFile, "holder"))
	if err != nil {
		return fmt.Errorf("finding the first process, which starts this one: %w", err)
	}
	config, err := clusterConfig()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	names, err := clusterNames(resolverFile)
	if err != nil {
		return err
	}
	a, err := agent.New(agent.Options{
		Node: s.node, Namespace: s.namespace, Config: config, Keeper: keeper, Left: left, Follows: follows, Userspace: s.userspace, Names: names,
		Registry: registry, Log: logger,
	})
	if err != nil {
		return fmt.Errorf("beginning: %w", err)
	}
	logger.Info("starting", "version", version, "node", s.node, "namespaces", len(left.Namespaces), "tunnels", len(left.TUNs))
	ctx, orphaned := context.WithCancelCause(ctx)
	go func() { orphaned(keeper.Wait()) }()
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { tunnel.Thrifty(inner); return nil })
	group.Go(func() error { return a.Run(inner) })
	group.Go(func() error { answer(inner, s.alive, logger); return nil })
	group.Go(func() error { return show(inner, a, config, s.address, registry, logger) })
	err = group.Wait()
	if why := context.Cause(ctx); err == nil && !errors.Is(why, context.Canceled) {
		return why
	}
	return err
}

// show shows the agent's vitals. That somebody else has the port costs them alone: whether it lives is asked elsewhere.
func show(ctx context.Context, a *agent.Agent, config *rest.Config, address string, registry *prometheus.Registry, logger logr.Logger) error {
	asks := rest.CopyConfig(config)
	asks.Timeout = requestLimit
	client, err := agent.NewClient(asks)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		shown, err := vitals.Listen(vitals.Options{Address: address, Ask: client.Create, Gatherer: registry, Logger: logger.WithName("vitals")})
		if err == nil {
			shown.AddReadyzCheck("agent", a.Ready)
			return shown.Serve(ctx)
		}
		logger.Error(err, "metrics and probes are not shown")
		select {
		case <-ctx.Done():
		case <-time.After(pauseMost):
		}
	}
	return nil
}

// newLogger writes a line of JSON per message, of two levels.
func newLogger(level string) (logr.Logger, error) {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	switch level {
	case "info":
	case "debug": // V(1); more than that is other libraries' talk
		options.Level = slog.LevelInfo - 1
	default:
		return logr.Logger{}, fmt.Errorf("--log-level: %q is unknown; use info or debug", level)
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(os.Stdout, options)), nil
}

// clusterNames finds the cluster's DNS.
func clusterNames(file string) (*agent.Names, error) {
	conf, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster's DNS: %w", err)
	}
	defer conf.Close()
	servers, domain, err := dns.ReadResolver(conf)
	if err != nil {
		return nil, err
	}
	return &agent.Names{Upstream: servers, Domain: domain}, nil
}

// clusterConfig finds the cluster this program runs in, or for a developer the one that
// KUBECONFIG names.
func clusterConfig() (*rest.Config, error) {
	// A connection that died without a word has to be noticed before a Lease runs out twice.
	for name, seconds := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "2", "HTTP2_PING_TIMEOUT_SECONDS": "1"} {
		if os.Getenv(name) == "" {
			if err := os.Setenv(name, seconds); err != nil {
				return nil, fmt.Errorf("setting %s: %w", name, err)
			}
		}
	}
	config, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) && os.Getenv("KUBECONFIG") != "" {
		config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	}
	if err != nil {
		return nil, fmt.Errorf("finding the cluster to work in: %w", err)
	}
	config.QPS = -1 // the API server's own fairness is the limit
	config.UserAgent = "pelago-agent/" + version
	return config, nil
}
