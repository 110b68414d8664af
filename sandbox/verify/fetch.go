package verify

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// fetchTimeout is the patience with one request, in seconds.
const fetchTimeout = 3

// answer is what a web server of a check says.
type answer struct {
	// name is the server's $ANSWER, its pod's name as a rule.
	name string
	// client is the address that the request came from, as the server saw it.
	client netip.Addr
}

// parseAnswer reads "NAME ADDRESS". Busybox writes addresses in brackets and
// IPv4 as a part of IPv6.
func parseAnswer(text string) (answer, error) {
	name, from, ok := strings.Cut(strings.TrimSpace(text), " ")
	ip, err := netip.ParseAddr(strings.Trim(from, "[]"))
	if !ok || err != nil {
		return answer{}, fmt.Errorf("an answer that is not from a server of this check: %q", shorten(text, 80))
	}
	return answer{name, ip.Unmap().WithZone("")}, nil
}

// fetchCommand fetches from a shell. The applet's own timeout option crashes in
// Debian's busybox 1.35.
func fetchCommand(address string) string {
	return fmt.Sprintf("timeout %d wget -q -O - http://%s/cgi-bin/who", fetchTimeout, address)
}

// fetchFrom makes a request in a pod, once.
func (e *env) fetchFrom(ctx context.Context, pod, address string) (answer, error) {
	out, err := e.exec(ctx, pod, nil, "sh", "-c", fetchCommand(address))
	if err != nil {
		return answer{}, err
	}
	return parseAnswer(out)
}

// fetchFromHost makes a request on the host, once, over a new connection.
func (e *env) fetchFromHost(ctx context.Context, address string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DialContext: e.Dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/cgi-bin/who", nil)
	if err != nil {
		return answer{}, fmt.Errorf("fetching: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, fmt.Errorf("fetching: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if err != nil {
		return answer{}, fmt.Errorf("fetching: %w", err)
	}
	return parseAnswer(string(text))
}

// everyServer fetches until each of the servers named has answered.
func everyServer(ctx context.Context, what string, names []string, fetch func(context.Context) (answer, error)) error {
	missing := map[string]bool{}
	for _, n := range names {
		missing[n] = true
	}
	return until(ctx, "an answer from each of "+strings.Join(names, ", ")+" through "+what, func(ctx context.Context) error {
		for range 4 * len(names) {
			a, err := fetch(ctx)
			if err != nil {
				return err
			}
			if delete(missing, a.name); len(missing) == 0 {
				return nil
			}
		}
		return fmt.Errorf("%d have not answered yet", len(missing))
	})
}
