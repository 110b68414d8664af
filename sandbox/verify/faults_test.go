package verify

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// TestSilent: a paused API server says nothing at all; one that refuses or is gone is another fault.
func TestSilent(t *testing.T) {
	for _, c := range []struct {
		reason string
		serve  http.HandlerFunc
		want   string
	}{
		{"it says nothing", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, ""},
		{"it answers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1"}`))
		}, "answers although"},
		{"it refuses", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "not silent although"},
		{"it is gone", nil, "not silent although"},
	} {
		server := httptest.NewServer(c.serve)
		if c.serve == nil {
			server.Close()
		}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		e := &env{Target: Target{Nodes: []string{"rome-1"}}, client: client}
		err = e.silent(t.Context())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.reason, err, c.want)
		}
		server.Close()
	}
}
