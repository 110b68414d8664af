package peering

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

const (
	// attemptLimit bounds one introduction.
	attemptLimit = 20 * time.Second
	// introduceMin and introduceMax bound the wait between introductions that failed.
	introduceMin = 500 * time.Millisecond
	introduceMax = 30 * time.Second
	// lookAgainMin and lookAgainMax bound how soon is tried again what only somebody can
	// mend.
	lookAgainMin = 15 * time.Second
	lookAgainMax = 5 * time.Minute
)

// refusal is why an introduction failed: a reason of a condition and what to do.
type refusal struct {
	reason  string
	message string
	stalled bool          // until somebody acts
	after   time.Duration // what the provider asked to wait
}

// Error is the message.
func (r *refusal) Error() string { return r.message }

// introduction is what one needs to introduce this cluster.
type introduction struct {
	consume *v1alpha1.Consume
	// at is where the endpoint is in truth, at one of these addresses, if it is in a tunnel.
	at    []netip.AddrPort
	token string
	spec  v1alpha1.IdentitySpec
	want  expected
}

var errUntrusted = errors.New("untrusted")

// introduce sends one introduction. Its errors are refusals; they never hold the token.
func (r *reconciler) introduceOnce(ctx context.Context, i introduction) (*answer, *refusal) {
	ctx, cancel := context.WithTimeout(ctx, attemptLimit)
	defer cancel()
	hc, err := r.endpoint(i.consume, i.at)
	if err != nil {
		return nil, &refusal{reason: v1alpha1.ReasonInvalid, message: err.Error(), stalled: true}
	}
	defer hc.CloseIdleConnections()
	body, err := json.Marshal(map[string]any{"token": i.token, "spec": i.spec})
	if err != nil {
		return nil, &refusal{reason: v1alpha1.ReasonInvalid, message: "the introduction cannot be encoded", stalled: true}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(i.consume.AuthURL, "/")+v1alpha1.AuthPath, bytes.NewReader(body))
	if err != nil {
		return nil, &refusal{reason: v1alpha1.ReasonInvalid, message: "spec.consume.authURL: not https://HOST:PORT", stalled: true}
	}
	request.Header.Set("Content-Type", "application/json")
	reply, err := hc.Do(request)
	if err != nil {
		return nil, unanswered(i, err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Body, maxReply+1))
	if err != nil {
		return nil, unanswered(i, err)
	}
	if reply.StatusCode != http.StatusOK {
		return nil, refused(reply.StatusCode, reply.Header.Get("Retry-After"), text)
	}
	a, err := parseReply(text, i.want)
	if err != nil {
		return nil, &refusal{reason: v1alpha1.ReasonInvalid, stalled: true,
			message: "the provider's answer is not usable: " + err.Error() + "; ask its owner which version of Pelago runs there"}
	}
	return a, nil
}

// endpoint returns a client that talks to the pinned endpoint and nobody else.
func (r *reconciler) endpoint(c *v1alpha1.Consume, at []netip.AddrPort) (*http.Client, error) {
	pin, err := hex.DecodeString(c.CASHA256)
	if err != nil || len(pin) != sha256.Size {
		return nil, errors.New("spec.consume.caSHA256: not a SHA-256 in hexadecimal; copy the whole line of pelago generate")
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if len(at) > 0 {
				return fleet.DialAny(ctx, r.dial, network, at)
			}
			return r.dial(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13,
			ServerName: v1alpha1.AuthService,
			// Whom to trust is decided by verify, from the pin alone.
			InsecureSkipVerify: true,
			VerifyConnection: func(s tls.ConnectionState) error {
				return verify(s.PeerCertificates, pin, r.clock.Now())
			},
		},
		TLSHandshakeTimeout:    10 * time.Second,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 16 << 10,
	}
	if c.ProxyURL != "" {
		proxy, err := url.Parse(c.ProxyURL)
		if err != nil || proxy.Host == "" {
			return nil, errors.New("spec.consume.proxyURL: not http://HOST:PORT")
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// verify accepts a chain to exactly the pinned authority, for the name of the
// authentication endpoint.
func verify(chain []*x509.Certificate, pin []byte, now time.Time) error {
	if len(chain) == 0 {
		return errUntrusted
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, c := range chain {
		if sum := sha256.Sum256(c.Raw); bytes.Equal(sum[:], pin) && c.IsCA {
			roots.AddCert(c)
			found = true
		} else {
			between.AddCert(c)
		}
	}
	if !found {
		return fmt.Errorf("%w: its authority is not the pinned one", errUntrusted)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		DNSName: v1alpha1.AuthService, Roots: roots, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errUntrusted, err)
	}
	return nil
}

// unanswered is an introduction that did not get through.
func unanswered(i introduction, err error) *refusal {
	c := i.consume
	if errors.Is(err, errUntrusted) {
		return &refusal{reason: v1alpha1.ReasonUntrusted,
			message: "the authentication endpoint " + c.AuthURL + " is not of the authority in spec.consume.caSHA256; ask the provider for a new line of pelago generate"}
	}
	return &refusal{reason: v1alpha1.ReasonAuthUnreachable,
		message: "the authentication endpoint " + c.AuthURL + " does not answer: " + brief(err) + "; trying again" + silent(i.at)}
}

// refusedSentence is the one answer to every invitation that is not accepted.
const refusedSentence = "the invitation is wrong, was used or has expired; ask the provider for a new one (pelago generate peer-command)"

// refused reads an error of the endpoint. What it says is shown, bounded; which
// reason it is decides what happens.
func refused(code int, retryAfter string, text []byte) *refusal {
	var said struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(text, &said) // what cannot be read has no reason
	said.Message = printable(said.Message)
	if said.Message == "" {
		said.Message = "HTTP status " + strconv.Itoa(code)
	}
	out := &refusal{message: "the provider says: " + said.Message}
	if seconds, err := strconv.Atoi(retryAfter); err == nil && seconds > 0 && seconds < 3600 {
		out.after = time.Duration(seconds) * time.Second
	}
	switch said.Reason {
	case v1alpha1.ReasonInvitationRefused:
		out.reason, out.stalled = said.Reason, true
		out.message = refusedSentence
	case v1alpha1.ReasonNameRefused, v1alpha1.ReasonInvalid, v1alpha1.ReasonDuplicate, v1alpha1.ReasonUnsupported:
		out.reason, out.stalled = said.Reason, true
	case v1alpha1.ReasonWaiting:
		out.reason = said.Reason
	default: // TooManyFailures, and what this version does not know
		out.reason = v1alpha1.ReasonAuthUnreachable
	}
	return out
}

// printable bounds a stranger's sentence.
func printable(s string) string {
	s = strings.ToValidUTF8(s, "")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	if runes := []rune(s); len(runes) > 300 {
		s = string(runes[:300]) + "…"
	}
	return strings.TrimSpace(s)
}

// brief is an error without the address, which the sentence around it has already.
func brief(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return printable(err.Error())
}
