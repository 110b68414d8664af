package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
)

const (
	// freshAtHome is how long an answer of a provider is used.
	freshAtHome = 10 * time.Second
	// askLimit bounds one question to a provider, which asks its kubelets meanwhile.
	askLimit = 15 * time.Second
	// waitLimit bounds a reader's wait for that: a metrics-server waits for ten seconds.
	waitLimit = 8 * time.Second
	// failedFor is how long a provider or a kubelet that gave no answer is not asked again.
	failedFor = 5 * time.Second
)

// Peer is the connection to one provider.
type Peer interface {
	// TenantNamespace is this cluster's namespace there.
	TenantNamespace() string
	// Stream is the address of its API server, and what carries requests there.
	Stream() (*url.URL, http.RoundTripper, error)
}

// Client asks providers what this cluster's pods use there, when somebody wants to
// know and not more often than every ten seconds. It is safe for concurrent use.
type Client struct {
	peer  func(peering string) (Peer, bool)
	clock clock.PassiveClock
	group singleflight.Group

	mu   sync.Mutex
	kept map[string]seen[[]Pod]
}

// NewClient makes a client of the providers that peer finds. The clock is the real
// one if nil.
func NewClient(peer func(peering string) (Peer, bool), clk clock.PassiveClock) *Client {
	if clk == nil {
		clk = clock.RealClock{}
	}
	return &Client{peer: peer, clock: clk, kept: map[string]seen[[]Pod]{}}
}

// errGone says that there is no connection.
var errGone = errors.New("there is no connection to the provider")

// Pods returns what this cluster's pods use at the provider of a peering: if it fails or
// is late, what it said within the last half minute. Neither the answer nor what it points
// to may be changed.
func (c *Client) Pods(ctx context.Context, peering string) ([]Pod, error) {
	now := c.clock.Now()
	c.mu.Lock()
	forget(c.kept, now, 0) // what nobody asks for is not kept
	last := c.kept[peering]
	c.mu.Unlock()
	if now.Before(last.until) {
		return last.given(now, last.err)
	}
	done := c.group.DoChan(peering, func() (any, error) {
		// The question outlives the one who asked first: others wait for it too.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), askLimit)
		defer cancel()
		pods, err := c.ask(limited, peering)
		c.mu.Lock()
		c.kept[peering] = c.kept[peering].ended(c.clock.Now(), pods, err, freshAtHome)
		c.mu.Unlock()
		return pods, err
	})
	waiting, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	select {
	case <-waiting.Done():
		return last.given(c.clock.Now(), waiting.Err())
	case r := <-done:
		if r.Err != nil {
			return last.given(c.clock.Now(), r.Err)
		}
		return r.Val.([]Pod), nil
	}
}

// ask reads the podstats of the tenant namespace at a provider.
func (c *Client) ask(ctx context.Context, peering string) ([]Pod, error) {
	peer, ok := c.peer(peering)
	if !ok {
		return nil, errGone
	}
	base, rt, err := peer.Stream()
	if err != nil {
		return nil, fmt.Errorf("connecting to the provider: %w", err)
	}
	namespace := peer.TenantNamespace()
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return nil, errors.New("asking for podstats: the tenant namespace is no name of one")
	}
	at := base.JoinPath(Path, Version, "namespaces", namespace, Resource)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, errors.New("asking for podstats: the address of the provider is none")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "pelago")
	res, err := rt.RoundTrip(r) // follows no redirection
	if err != nil {
		return nil, fmt.Errorf("asking for podstats: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for podstats: the provider answers %d", res.StatusCode)
	}
	pods, err := read(res.Body, c.clock.Now())
	if err != nil {
		return nil, fmt.Errorf("reading podstats: %w", err)
	}
	return pods, nil
}

// read takes what a provider says, within bounds.
func read(body io.Reader, now time.Time) ([]Pod, error) {
	var pods []Pod
	err := elements(body, maxAnswer, "items", func(text []byte) error {
		var said Pod
		if err := json.Unmarshal(text, &said); err != nil {
			return err
		}
		if pod, ok := sane(&said, now); ok {
			pods = append(pods, pod)
		}
		return nil
	})
	return pods, err
}
