package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// get asks an agent for one of its pages, with a token or none.
func get(t *testing.T, n *netnstest.Node, path, token string) (status int, text string) {
	t.Helper()
	client := &http.Client{Timeout: netnstest.Patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // each process makes its certificate in memory, signed by nobody
		DialContext: func(_ context.Context, network, address string) (c net.Conn, err error) {
			err = netns.In(n.File, func() (err error) { c, err = net.Dial(network, address); return err })
			return c, err
		},
	}}
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:7078"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	all, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(all)
}

// testVitals reads what a gateway's agent says of itself.
func testVitals(t *testing.T, w *world) {
	n := w.rome.Nodes[w.rome.gateway(t)]
	if status, text := get(t, n, "/readyz", ""); status != http.StatusOK {
		t.Errorf("it is not ready: %d, %s", status, text)
	}
	if status, _ := get(t, n, "/metrics", ""); status != http.StatusUnauthorized {
		t.Errorf("metrics are shown to strangers: %d", status)
	}
	reader := meta("shop", "reader")
	w.rome.create(
		&corev1.ServiceAccount{ObjectMeta: reader},
		&rbacv1.ClusterRole{ObjectMeta: meta("", "read-metrics"), Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta("", "read-metrics"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "read-metrics"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: reader.Namespace, Name: reader.Name}}},
	)
	var text, token string
	until(t, "metrics are shown to whom the cluster allows it", 2*netnstest.Patience, func() (ok bool) {
		request := &authenticationv1.TokenRequest{} // a refusal is remembered by token
		if err := w.rome.api.Client(t).SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: reader}, request); err != nil {
			t.Fatal(err)
		}
		var status int
		token = request.Status.Token
		status, text = get(t, n, "/metrics", token)
		return status == http.StatusOK
	})
	for _, want := range []string{
		`pelago_tunnel_alive{peering="peering-milan"} 1`, `pelago_tunnel_bytes_total{direction="sent",peering="peering-milan"} [1-9]`,
		`pelago_tunnel_bytes_total{direction="received",peering="peering-milan"} [1-9]`,
		`pelago_gateway_dropped_packets_total{peering="peering-milan",reason="denied"} [1-9]`,
		`pelago_gateway_dropped_packets_total{peering="peering-milan",reason="source"} 0`,
		`pelago_gateway_dropped_packets_total{peering="peering-milan",reason="garbage"} [0-9]`,
		`pelago_tunnel_rested_seconds_total{peering="peering-milan"} [0-9]`,
		`pelago_network_problems 0`, `pelago_network_failures_total`, `pelago_tunnel_latency_seconds_count{peering="peering-milan"} [1-9]`,
		`pelago_tunnel_handshake_timestamp_seconds{peering="peering-milan"} 1`,
		`pelago_traffic_bytes_total{direction="sent",namespace="shop",peering="peering-milan"} [1-9]`,
		`pelago_traffic_packets_total{direction="received",namespace="shop",peering="peering-milan"} [1-9]`,
		`pelago_traffic_missed_connections_total{peering="peering-milan"} 0`,
	} {
		if !regexp.MustCompile("(?m)^" + want).MatchString(text) {
			t.Errorf("there is no %s in:\n%s", want, regexp.MustCompile("(?m)^pelago.*").FindAllString(text, -1))
		}
	}
	until(t, "who has little to do does it on one processor", 2*netnstest.Patience, func() bool {
		<-time.After(3 * time.Second) // it has to have little to do for two: a question is work too
		_, text := get(t, n, "/metrics", token)
		return regexp.MustCompile("(?m)^go_sched_gomaxprocs_threads 1$").MatchString(text)
	})
}
