package fleet

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// paging answers each request with the next page, and the last again and again.
type paging struct {
	pages []string
	calls int
}

func (p *paging) RoundTrip(*http.Request) (*http.Response, error) {
	text := p.pages[min(p.calls, len(p.pages)-1)]
	p.calls++
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// FuzzList: whatever is on the pages of a list, what is kept is of the tenant namespace,
// and the list ends.
func FuzzList(f *testing.F) {
	f.Add(`{"metadata":{"resourceVersion":"1","continue":"x"},"items":[{"metadata":{"namespace":"ns","name":"a"}}]}`, `{"metadata":{"resourceVersion":"2"},"items":[]}`)
	f.Add(`{"metadata":{"resourceVersion":"1","continue":"x"},"items":null}`, `{"metadata":{"continue":"x"},"items":[null,{"metadata":7}]}`)
	f.Add(`{"metadata":{},"items":[{"metadata":{"namespace":"kube-system","name":"a"}},{"spec":{"resources":{"cpu":"1e99"}}}]}`, `[]`)
	f.Fuzz(func(t *testing.T, first, second string) {
		s, m, _ := standing()
		p := &paging{pages: []string{first, second}}
		s.base, s.stream = &url.URL{Scheme: "https", Host: "milan.example"}, &http.Client{Transport: p}
		err := s.list(t.Context(), m)
		if p.calls > maxPages {
			t.Fatalf("%d pages were read", p.calls)
		}
		if err != nil && len(m.all()) > 0 {
			t.Errorf("of a list that failed %d are kept", len(m.all()))
		}
		for _, u := range m.all() {
			if u.GetNamespace() != "ns" || u.GetName() == "" || u.GetKind() != "ResourceOffer" {
				t.Errorf("took %s %q of %q", u.GetKind(), u.GetName(), u.GetNamespace())
			}
			_ = into(u, &v1alpha1.ResourceOffer{})
			_ = into(u, &unstructured.Unstructured{})
		}
	})
}

// FuzzStatusError: a peer's refusal is an error of an API server, short and readable.
func FuzzStatusError(f *testing.F) {
	f.Add([]byte(`{"kind":"Status","code":403,"reason":"Forbidden","message":"no"}`), 403)
	f.Add([]byte(`{"kind":"Status","code":-1,"message":"`+strings.Repeat("ä", 299)+`"}`), 500)
	f.Add([]byte(`{"kind":"Status","code":500,"message":"a`+strings.Repeat("ä", 299)+`"}`), 500)
	f.Add([]byte(`<html>`), 0)
	f.Fuzz(func(t *testing.T, text []byte, code int) {
		err := statusError(text, code)
		var said apierrors.APIStatus
		if !errors.As(err, &said) || len(err.Error()) > 400 || !utf8.ValidString(err.Error()) {
			t.Fatalf("%d bytes: %q", len(err.Error()), err)
		}
	})
}
