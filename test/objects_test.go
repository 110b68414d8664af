package test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// noConfigMaps has an API server answer all that asks for ConfigMaps with a code.
type noConfigMaps struct {
	http.RoundTripper
	code int
}

func (n noConfigMaps) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/configmaps") {
		return &http.Response{StatusCode: n.code, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
	}
	return n.RoundTripper.RoundTrip(r)
}

// TestObjects holds that what cannot be listed is not taken for what is not there, but for kinds
// that are gone or not for listing.
func TestObjects(t *testing.T) {
	server := kubetest.Server(t)
	server.Namespace(t)
	for code, lists := range map[int]bool{0: true, http.StatusNotFound: true, http.StatusMethodNotAllowed: true, http.StatusForbidden: false, http.StatusServiceUnavailable: false} {
		config := rest.CopyConfig(server.Config)
		if code != 0 {
			config.Wrap(func(base http.RoundTripper) http.RoundTripper { return noConfigMaps{base, code} })
		}
		c := &continuum{Continuum: &kubetest.Continuum{Configs: map[string]*rest.Config{"rome": config}}}
		found, err := c.listed(t.Context(), "rome")
		if lists != (err == nil) || !lists && !strings.Contains(err.Error(), "configmaps") {
			t.Errorf("answered %d, it is said: %v", code, err)
		}
		if has := slices.Contains(found, "namespaces.//default"); has != lists {
			t.Errorf("answered %d, the namespace default is found: %t", code, has)
		}
		maps := slices.ContainsFunc(found, func(o string) bool { return strings.HasPrefix(o, "configmaps./") })
		if maps != (code == 0) {
			t.Errorf("answered %d, ConfigMaps are found: %t", code, maps)
		}
	}
}
