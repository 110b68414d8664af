package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// Bounds of what a provider says when it refuses.
const (
	maxRefusal  = 64 << 10
	refusalTime = 5 * time.Second
	maxText     = 1024
	maxValue    = 256
)

// carry has a request done by the provider that runs the pod. What passes is the
// subresource asked for, its translated query and the names of streaming protocols;
// nothing else of the caller goes there and nothing else of the answer comes back.
func (s *server) carry(w http.ResponseWriter, r *http.Request, t target) {
	kind, say := upgradeOf(r.Header), s.home.about(r.Context(), t.namespace, s.peering(), s.node)
	peer, at, err := s.prepare(r, t, kind)
	if err != nil {
		s.fail(w, err)
		return
	}
	base, rt, err := peer.Stream()
	if err != nil {
		s.logger.V(1).Info("provider not reached", "node", s.node, "cause", err.Error())
		s.fail(w, unreachable(say))
		return
	}
	to := &url.URL{Scheme: base.Scheme, Host: base.Host, Path: strings.TrimSuffix(base.Path, "/") + at.Path, RawQuery: at.RawQuery}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.stream.Load().ctx, cancel)()
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	proxy := &httputil.ReverseProxy{
		Transport: clean{rt: rt, upgrade: kind != ""},
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host, p.Out.Body, p.Out.ContentLength = to, to.Host, nil, 0
			p.Out.Header = headers(r.Header, kind)
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(logr.ToSlogHandler(s.logger.V(1)), slog.LevelInfo),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if refused := (refusal{}); !errors.As(err, &refused) {
				s.logger.V(1).Info("request not carried", "node", s.node, "cause", err.Error())
				err = unreachable(say)
			}
			s.fail(w, say.telling(err))
		},
	}
	proxy.ServeHTTP(&taking{ResponseWriter: w, ctx: ctx, end: cancel, linger: s.linger}, r.WithContext(ctx))
}

// prepare finds what to ask at which provider.
func (s *server) prepare(r *http.Request, t target, kind string) (Peer, *url.URL, error) {
	if err := t.check(); err != nil {
		return nil, nil, refuse(http.StatusBadRequest, "%s", err)
	}
	if t.part != "log" && kind == "" {
		return nil, nil, refuse(http.StatusBadRequest, "an upgrade of the connection to SPDY/3.1 or websocket is required")
	}
	if t.part == "log" && kind != "" {
		return nil, nil, refuse(http.StatusBadRequest, "logs are read without an upgrade of the connection")
	}
	query, err := t.query(r.URL.Query())
	if err != nil {
		return nil, nil, refuse(http.StatusBadRequest, "%s", err)
	}
	peer, ref, err := s.home.where(r.Context(), s.node, s.peering(), t)
	if err != nil {
		return nil, nil, err
	}
	path := "/api/v1/namespaces/" + ref.Namespace + "/" + string(corev1.ResourcePods) + "/" + ref.Name + "/" + t.part
	return peer, &url.URL{Path: path, RawQuery: query.Encode()}, nil
}

// fail answers with why not, as text: what calls kubelets shows it as it is.
func (s *server) fail(w http.ResponseWriter, err error) {
	refused := refusal{code: http.StatusInternalServerError, text: "the request could not be looked into; the log of pelago-manager says why"}
	if !errors.As(err, &refused) {
		s.logger.Error(err, "request not carried", "node", s.node)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(refused.code)
	_, _ = io.WriteString(w, refused.text)
}

// unanswered is the code when the provider does not answer. API servers keep the text of a
// 503 to themselves, and show this one's.
const unanswered = http.StatusInternalServerError

func unreachable(say words) error {
	if say.foreign {
		return refuse(unanswered, "the cluster that runs the pod does not answer; try again later")
	}
	return refuse(unanswered, "%s, which runs the pod, does not answer; try again when the peering is reachable", say.cluster)
}

// upgradeOf is the protocol to which a request wants to upgrade, of those there are.
func upgradeOf(h http.Header) string {
	wants := false
	for _, v := range h.Values("Connection") {
		for token := range strings.SplitSeq(v, ",") {
			wants = wants || strings.EqualFold(strings.TrimSpace(token), "Upgrade")
		}
	}
	for _, kind := range []string{"SPDY/3.1", "websocket"} {
		if wants && strings.EqualFold(h.Get("Upgrade"), kind) {
			return kind
		}
	}
	return ""
}

// headers are those that travel: what the two ends of a stream need to agree on.
// WebSockets may carry a bearer token among their protocols; only protocols go.
func headers(in http.Header, kind string) http.Header {
	out := http.Header{"User-Agent": {"pelago"}, "Accept": {"*/*"}}
	if kind == "" {
		return out
	}
	out.Set("Connection", "Upgrade")
	out.Set("Upgrade", kind)
	for _, name := range []string{"Sec-Websocket-Key", "Sec-Websocket-Version"} {
		if v := in.Get(name); v != "" && kind == "websocket" && len(v) <= maxValue {
			out.Set(name, v)
		}
	}
	for _, name := range []string{"Sec-Websocket-Protocol", "X-Stream-Protocol-Version"} {
		for _, v := range protocols(in.Values(name)) {
			out.Add(name, v)
		}
	}
	return out
}

// protocols are the streaming protocols among the values of a header.
func protocols(values []string) []string {
	var known []string
	for _, v := range values {
		for token := range strings.SplitSeq(v, ",") {
			token = strings.TrimSpace(token)
			is := strings.HasSuffix(token, "channel.k8s.io") || strings.HasSuffix(token, "portforward.k8s.io")
			if is && len(token) <= 64 && len(known) < 16 && !strings.HasPrefix(token, "base64url.bearer.") {
				known = append(known, token)
			}
		}
	}
	return known
}

// clean sends requests to a provider and lets through what belongs to the stream.
type clean struct {
	rt      http.RoundTripper
	upgrade bool
}

// RoundTrip sends one request. Interim answers and trailers end here, redirections are
// not followed nor told of, refusals are read within bounds and told as text.
func (c clean) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := c.rt.RoundTrip(r.WithContext(bare{r.Context()}))
	if err != nil {
		return nil, err
	}
	out := &http.Response{
		Status: http.StatusText(res.StatusCode), StatusCode: res.StatusCode, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: res.Body, ContentLength: -1,
	}
	switch {
	case c.upgrade && res.StatusCode == http.StatusSwitchingProtocols:
		out.ContentLength = 0
		out.Header.Set("Connection", "Upgrade")
		for _, name := range []string{"Upgrade", "Sec-Websocket-Accept", "Sec-Websocket-Protocol", "X-Stream-Protocol-Version"} {
			if v := res.Header.Get(name); v != "" && len(v) <= maxValue {
				out.Header.Set(name, v)
			}
		}
		return out, nil
	case !c.upgrade && res.StatusCode == http.StatusOK:
		// Nothing a provider sends is to be taken for a page.
		out.Header.Set("Content-Type", "text/plain; charset=utf-8")
		out.Header.Set("X-Content-Type-Options", "nosniff")
		return out, nil
	}
	return nil, refused(res)
}

// refused is what a provider says instead of an answer.
func refused(res *http.Response) error {
	defer res.Body.Close()
	code := res.StatusCode
	if code < http.StatusBadRequest || code == http.StatusUnauthorized || code > 599 {
		return refuse(http.StatusBadGateway, "the cluster that runs the pod gave an answer that is none (status %d)", code)
	}
	slow := time.AfterFunc(refusalTime, func() { _ = res.Body.Close() })
	defer slow.Stop()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what came counts
	var said struct {
		Kind    string `json:"kind"`
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &said) == nil && said.Kind == "Status" && said.Message != "" {
		text = []byte(said.Message)
	}
	if message := clip(string(text)); message != "" {
		return refusal{code: code, text: message, theirs: true}
	}
	return refusal{code: code, text: "the cluster that runs the pod refused: " + http.StatusText(code)}
}

// clip makes a text of a provider one short line of printable characters.
func clip(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text))
}

// bare is a context without values: a proxy would otherwise hand interim answers on.
type bare struct{ context.Context }

// Value is none.
func (bare) Value(any) any { return nil }
