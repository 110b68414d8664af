package vitals

import (
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/pelago-dev/pelago/internal/access"
)

// gate lets requests pass that may read what is behind it: the token's user must have
// the verb get on the path, as the API server says.
type gate struct {
	access *access.Gate
	behind http.Handler
}

func (g gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	read := access.Asked{Path: &authorizationv1.NonResourceAttributes{Path: r.URL.Path, Verb: "get"}}
	if status := g.access.Status(r, read); status != http.StatusOK {
		access.Refuse(w, status)
		return
	}
	w.Header().Del("Connection") // who may have the answer comes again
	g.behind.ServeHTTP(w, r)
}
