package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// newEtcd makes a single-member etcd that keeps nothing safe from a power cut:
// it never waits for the disk, which is right for a cluster that can be made
// again in seconds and wrong for any other.
func newEtcd() *cobra.Command {
	var dir, client, cert, key, ca, peer string
	command := &cobra.Command{
		Use:           "etcd",
		Short:         "one etcd member, without fsync",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(*cobra.Command, []string) error {
			clientURL, err := url.Parse(client)
			if err != nil {
				return fmt.Errorf("parsing --listen-client-url: %w", err)
			}
			peerURL, err := url.Parse(peer)
			if err != nil {
				return fmt.Errorf("parsing --listen-peer-url: %w", err)
			}
			config := embed.NewConfig()
			config.Dir = dir
			config.LogLevel = "warn"
			config.UnsafeNoFsync = true
			config.ListenClientUrls = []url.URL{*clientURL}
			config.AdvertiseClientUrls = []url.URL{*clientURL}
			config.ListenPeerUrls = []url.URL{*peerURL}
			config.AdvertisePeerUrls = []url.URL{*peerURL}
			config.InitialCluster = config.InitialClusterFromName(config.Name)
			config.QuotaBackendBytes = 2 << 30
			config.AutoCompactionMode = "periodic"
			config.AutoCompactionRetention = "10m"
			config.ClientTLSInfo.CertFile = cert
			config.ClientTLSInfo.KeyFile = key
			config.ClientTLSInfo.TrustedCAFile = ca
			config.ClientTLSInfo.ClientCertAuth = ca != ""
			server, err := embed.StartEtcd(config)
			if err != nil {
				return fmt.Errorf("starting etcd: %w", err)
			}
			defer server.Close()
			stop := make(chan os.Signal, 1)
			signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
			select {
			case <-stop:
				return nil
			case err := <-server.Err():
				return fmt.Errorf("running etcd: %w", err)
			case <-server.Server.StopNotify():
				return fmt.Errorf("etcd stopped by itself")
			}
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "data-dir", "", "folder that holds the data")
	flags.StringVar(&client, "listen-client-url", "https://127.0.0.1:2379", "address for clients")
	flags.StringVar(&peer, "listen-peer-url", "http://127.0.0.1:2380", "address for other members, of which there are none")
	flags.StringVar(&cert, "cert-file", "", "server certificate")
	flags.StringVar(&key, "key-file", "", "server key")
	flags.StringVar(&ca, "trusted-ca-file", "", "CA that client certificates must come from")
	return command
}
