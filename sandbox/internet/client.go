package internet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// ErrInvalid is wrapped by the error of a Set whose Config was refused; nothing
// has changed then.
var ErrInvalid = errors.New("invalid config")

// Client talks to Serve. It keeps no connection.
type Client struct {
	// Socket is the path given to Serve.
	Socket string
}

// Set puts a config into force and returns once it is. The error wraps
// ErrInvalid if the config is at fault.
func (c Client) Set(ctx context.Context, config Config) error {
	body, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("writing the config: %w", err)
	}
	return c.do(ctx, http.MethodPut, "/config", body, nil)
}

// Get returns the config in force.
func (c Client) Get(ctx context.Context) (Config, error) {
	var config Config
	err := c.do(ctx, http.MethodGet, "/config", nil, &config)
	return config, err
}

// Stats returns what went between the clusters since Serve began.
func (c Client) Stats(ctx context.Context) (Stats, error) {
	var stats Stats
	err := c.do(ctx, http.MethodGet, "/stats", nil, &stats)
	return stats, err
}

func (c Client) do(ctx context.Context, method, path string, body []byte, into any) error {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Socket)
		},
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://internet"+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking the internet for %s: %w", path, err)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("asking the internet for %s: %w", path, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxConfig))
	switch {
	case err != nil:
		return fmt.Errorf("reading the answer to %s: %w", path, err)
	case response.StatusCode == http.StatusBadRequest:
		return fmt.Errorf("%w: %s", ErrInvalid, strings.TrimSpace(string(text)))
	case response.StatusCode >= http.StatusMultipleChoices:
		return fmt.Errorf("asking the internet for %s: %s", path, strings.TrimSpace(string(text)))
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("reading the answer to %s: %w", path, err)
	}
	return nil
}
