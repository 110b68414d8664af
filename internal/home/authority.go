package home

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// bare is the certificates of a text in PEM, each once, without what is between them: consumers of an
// earlier build take nothing else, and ten certificates at most.
func bare(text string) string {
	var out []byte
	seen := map[string]bool{}
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return string(out)
		}
		if block.Type != "CERTIFICATE" || seen[string(block.Bytes)] {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			continue
		}
		seen[string(block.Bytes)] = true
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
}

// errLargeCA says why nobody can be told which authority the API server has.
var errLargeCA = fmt.Errorf("the authority of the API server in ConfigMap "+rootCAName+" has more than the %d bytes that peers take: make it smaller or, for peers out of band, set apiServer.ca in ConfigMap "+
	v1alpha1.ConfigName+" to the one that signed its certificate", maxCALength)

// takeRoot makes the authority that service accounts trust count, and says whether it has changed. One
// without a certificate does not, and one that peers do not take is told to nobody.
func (h *Home) takeRoot(ctx context.Context, text string) bool {
	ca := bare(text)
	switch {
	case ca == "" && text != "":
		log.FromContext(ctx).Error(errors.New("it holds no certificate"), "authority of the API server refused, the last good one holds", "configMap", rootCAName)
		return false
	case len(ca) > maxCALength:
		log.FromContext(ctx).Error(errLargeCA, "authority of the API server is not told to peers", "configMap", rootCAName)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := h.rootCA != ca
	h.rootCA = ca
	return changed
}

// RootCA is the authority in PEM of the API server as pods of this cluster know it. The
// error says what the owner has to set before this cluster can provide.
func (h *Home) RootCA() (string, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.authority()
}

func (h *Home) authority() (string, error) {
	ca := h.rootCA
	if ca == "" {
		ca = bare(string(h.options.Config.CAData))
	}
	if len(ca) > maxCALength {
		return "", errLargeCA
	}
	return ca, nil
}
