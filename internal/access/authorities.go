package access

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
)

// Keys of the ConfigMap in which an API server says whom it trusts.
const (
	keyClientCA       = "client-ca-file"
	keyProxyCA        = "requestheader-client-ca-file"
	keyProxyNames     = "requestheader-allowed-names"
	keyUserHeaders    = "requestheader-username-headers"
	keyUIDHeaders     = "requestheader-uid-headers"
	keyGroupHeaders   = "requestheader-group-headers"
	keyExtraPrefixes  = "requestheader-extra-headers-prefix"
	groupAll          = "system:authenticated"
	maxHeaderValues   = 256 // groups, and values of extra headers, of one user
	maxIntermediates  = 8
	maxNamesInSetting = 64
)

// Authorities are whom the cluster trusts to say who a caller is: the authority of
// client certificates, and the front proxies of aggregated APIs with the headers they
// use. Until they are known nobody is trusted. They are safe for concurrent use.
type Authorities struct {
	mu      sync.RWMutex
	current settings
}

// settings are what the ConfigMap says.
type settings struct {
	clients, proxies                *x509.CertPool
	names, users, uids, groups, ext []string
}

// Set takes the data of the ConfigMap extension-apiserver-authentication. If part of
// it cannot be read, all stays as it was.
func (a *Authorities) Set(data map[string]string) error {
	next, err := parse(data)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = next
	return nil
}

func (a *Authorities) get() settings {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.current
}

func parse(data map[string]string) (settings, error) {
	var s settings
	var faults []error
	pool := func(key string) *x509.CertPool {
		if strings.TrimSpace(data[key]) == "" {
			return nil
		}
		p := x509.NewCertPool()
		if !p.AppendCertsFromPEM([]byte(data[key])) {
			faults = append(faults, fmt.Errorf("%s: no certificate in PEM", key))
			return nil
		}
		return p
	}
	list := func(key string) []string {
		var names []string
		if text := strings.TrimSpace(data[key]); text != "" {
			if err := json.Unmarshal([]byte(text), &names); err != nil || len(names) > maxNamesInSetting {
				faults = append(faults, fmt.Errorf("%s: not a JSON list of at most %d names", key, maxNamesInSetting))
				return nil
			}
		}
		return slices.DeleteFunc(names, func(n string) bool { return n == "" })
	}
	s.clients, s.proxies = pool(keyClientCA), pool(keyProxyCA)
	s.names, s.users, s.uids = list(keyProxyNames), list(keyUserHeaders), list(keyUIDHeaders)
	s.groups, s.ext = list(keyGroupHeaders), list(keyExtraPrefixes)
	if len(faults) > 0 {
		return settings{}, fmt.Errorf("reading whom the cluster trusts: %w", errors.Join(faults...))
	}
	return s, nil
}

// client is the user of a client certificate of the cluster's authority: its common
// name and organizations, as API servers read it.
func (a *Authorities) client(chain []*x509.Certificate, now time.Time) (authenticationv1.UserInfo, bool) {
	var none authenticationv1.UserInfo
	if !verified(chain, a.get().clients, now) || chain[0].Subject.CommonName == "" {
		return none, false
	}
	return authenticationv1.UserInfo{
		Username: chain[0].Subject.CommonName,
		Groups:   append(slices.Clone(chain[0].Subject.Organization), groupAll),
	}, true
}

// verified says whether a chain that the handshake has shown the key of leads to the pool.
func verified(chain []*x509.Certificate, pool *x509.CertPool, now time.Time) bool {
	if pool == nil || len(chain) == 0 || len(chain) > maxIntermediates {
		return false
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err == nil
}

// Proxied is the user on whose behalf a front proxy asks, that is an API server which
// has authenticated him and allowed what he asks for: aggregated APIs are called so.
// A certificate of the authority of front proxies counts only by a name allowed; where
// every name is, only if that authority does not also sign for ordinary clients, who
// could pass for anybody then.
func (a *Authorities) Proxied(r *http.Request, clk clock.PassiveClock) (authenticationv1.UserInfo, bool) {
	var user authenticationv1.UserInfo
	s, now := a.get(), clk.Now()
	if r.TLS == nil || !verified(r.TLS.PeerCertificates, s.proxies, now) {
		return user, false
	}
	name := r.TLS.PeerCertificates[0].Subject.CommonName
	if len(s.names) > 0 && !slices.Contains(s.names, name) || len(s.names) == 0 && verified(r.TLS.PeerCertificates, s.clients, now) {
		return user, false
	}
	user.Username, user.UID = first(r.Header, s.users), first(r.Header, s.uids)
	for _, header := range s.groups {
		user.Groups = append(user.Groups, r.Header.Values(header)...)
	}
	count := len(user.Groups)
	for header, values := range r.Header {
		for _, prefix := range s.ext {
			if len(header) <= len(prefix) || !strings.EqualFold(header[:len(prefix)], prefix) {
				continue
			}
			if user.Extra == nil {
				user.Extra = map[string]authenticationv1.ExtraValue{}
			}
			key := unescaped(strings.ToLower(header[len(prefix):]))
			user.Extra[key] = append(user.Extra[key], values...)
			count += len(values)
		}
	}
	return user, user.Username != "" && count <= maxHeaderValues
}

// first is the first value that is not empty of the headers named.
func first(h http.Header, names []string) string {
	for _, n := range names {
		if v := h.Get(n); v != "" {
			return v
		}
	}
	return ""
}

func unescaped(key string) string {
	if plain, err := url.PathUnescape(key); err == nil {
		return plain
	}
	return key
}
