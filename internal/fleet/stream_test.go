package fleet

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"encoding/pem"
)

// A stream goes by HTTP/1.1 with the connection's credential, has no bound on its
// length, and is refused once the connection is removed.
func TestStream(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer x" || r.ProtoMajor != 1 {
			w.WriteHeader(http.StatusUnauthorized)
		}
		fmt.Fprint(w, strings.Repeat("x", maxAnswer+1))
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	f := New(Options{Scheme: scheme()})
	c := Connection{Peering: peering, ServerURL: server.URL, CA: ca, Token: "x", TenantNamespace: "ns"}
	if err := f.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p, _ := f.Peer(peering)
	for _, query := range []string{"", "?follow=true"} {
		base, rt, err := p.Stream()
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base.String()+"/log"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := rt.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != 200 || err != nil || n != maxAnswer+1 || r.Header.Get("Authorization") != "" {
			t.Errorf("%q: got %d, %d bytes, %v", query, res.StatusCode, n, err)
		}
	}
	f.Remove(peering)
	if _, _, err := p.Stream(); !errors.Is(err, ErrRemoved) {
		t.Errorf("removed: got %v", err)
	}
}
