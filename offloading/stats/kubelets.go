package stats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// AccountName is the service account whose token kubelets are shown: it may read what
// nodes use, and nothing else.
const AccountName = "pelago-stats"

// Bounds of reading kubelets.
const (
	freshHere    = 5 * time.Second
	recallFor    = 90 * time.Second // for so long nobody waits for one that was waited for in vain, until it answers
	nodeLimit    = 5 * time.Second  // of a reader's wait for one
	answerLimit  = 20 * time.Second // of an ask, for those who come next: a busy node takes long
	readLimit    = 6 * time.Second
	nodesAtOnce  = 128
	maxSummary   = 8 << 20
	tokenSeconds = 600
	tokenAged    = 5 * time.Minute
	defaultPort  = 10250
	idleConns    = 64
)

// used is what the containers of one pod use.
type used struct{ containers []Container }

// figures are what nodes say of their pods, by the nodes' names and the pods' UIDs. No node
// is believed about pods of others.
type figures map[string]map[string]used

// podSummary is what is read of each pod in a kubelet's /stats/summary.
type podSummary struct {
	PodRef struct {
		UID string `json:"uid"`
	} `json:"podRef"`
	Containers []struct {
		Name      string      `json:"name"`
		StartTime metav1.Time `json:"startTime"`
		CPU       *struct {
			Time                 metav1.Time `json:"time"`
			UsageNanoCores       *uint64     `json:"usageNanoCores"`
			UsageCoreNanoSeconds *uint64     `json:"usageCoreNanoSeconds"`
		} `json:"cpu"`
		Memory *struct {
			Time            metav1.Time `json:"time"`
			WorkingSetBytes *uint64     `json:"workingSetBytes"`
		} `json:"memory"`
	} `json:"containers"`
}

// kubelets reads the nodes' kubelets, each at most every five seconds. One that fails, or
// answers late, is waited for once: after that it is asked beside the lists, until it
// answers again.
type kubelets struct {
	options Options
	limits  limits
	client  *http.Client
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	group   singleflight.Group

	mu    sync.Mutex
	kept  map[string]seen[map[string]used]
	token string
	aged  time.Time
}

// limits are how long one kubelet is waited for, how long it may take nevertheless, and
// how long a read of many takes.
type limits struct{ node, answer, read time.Duration }

var (
	// errSilent is of one that failed or was late before.
	errSilent = errors.New("it has failed or is late, and was not waited for")
	// errToken is no failure of a kubelet: there is no token, or it is no longer good.
	errToken = errors.New("there is no good token")
)

func newKubelets(o Options) (*kubelets, error) {
	roots, err := authority(o.Config)
	if err != nil {
		return nil, err
	}
	k := &kubelets{
		options: o, kept: map[string]seen[map[string]used]{}, limits: limits{nodeLimit, answerLimit, readLimit},
		dial: (&net.Dialer{Timeout: nodeLimit}).DialContext,
	}
	k.client = &http.Client{
		Timeout:       answerLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			ResponseHeaderTimeout: answerLimit, MaxIdleConns: idleConns, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10,
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return k.connect(ctx, network, address, roots)
			},
		},
	}
	return k, nil
}

// connect opens a connection to a kubelet and judges its certificate.
func (k *kubelets) connect(ctx context.Context, network, address string, roots *x509.CertPool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeLimit)
	defer cancel()
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	plain, err := k.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// The usual check would end here for kubelets that signed for themselves, as kubeadm's
	// do; trusting checks instead, and the token shown may read usage and nothing else.
	c := tls.Client(plain, &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, ServerName: host, VerifyConnection: trusting(roots, host, k.options.Clock.Now),
	})
	if err := c.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, err
	}
	return c, nil
}

// authority is the one that signed the API server's certificate, and in most clusters
// the kubelets' as well.
func authority(c *rest.Config) (*x509.CertPool, error) {
	config := rest.CopyConfig(c)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, errors.New("reading the cluster's authority: its file cannot be read")
	}
	roots := x509.NewCertPool()
	if len(config.CAData) > 0 && !roots.AppendCertsFromPEM(config.CAData) {
		return nil, errors.New("reading the cluster's authority: no certificate in PEM")
	}
	return roots, nil
}

// trusting judges a kubelet's certificate. One of the cluster's authority has to be
// right in every respect. Many clusters have kubelets that sign their own, which API
// servers accept as well (they check kubelets only where told to): these are accepted
// here, as what is shown to them is a token that lives for minutes and can do nothing
// but read the usage of nodes, and what they say is about their own pods.
func trusting(roots *x509.CertPool, host string, now func() time.Time) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return errors.New("the kubelet shows no certificate")
		}
		between := x509.NewCertPool()
		for _, c := range state.PeerCertificates[1:] {
			between.AddCert(c)
		}
		_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{
			DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now(),
		})
		var foreign x509.UnknownAuthorityError
		if err == nil || errors.As(err, &foreign) {
			return nil
		}
		// A wrong name is told before the authority is looked at: look at that alone.
		_, unnamed := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now()})
		if errors.As(unnamed, &foreign) {
			return nil
		}
		return fmt.Errorf("the kubelet's certificate: %w", err)
	}
}

// read asks the kubelets of nodes in parallel. Of those that have not answered when the
// time is over, what they said lately is taken.
func (k *kubelets) read(ctx context.Context, nodes []*corev1.Node) figures {
	ctx, cancel := context.WithTimeout(ctx, k.limits.read)
	defer cancel()
	k.mu.Lock()
	forget(k.kept, k.options.Clock.Now(), recallFor)
	k.mu.Unlock()
	all := figures{}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(nodesAtOnce)
	for _, node := range nodes {
		group.Go(func() error {
			pods, err := k.node(ctx, node)
			if err != nil {
				k.options.Logger.V(1).Info("kubelet not read", "node", node.Name, "cause", err.Error())
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			all[node.Name] = pods
			return nil
		})
	}
	_ = group.Wait() // each ends with ctx
	return all
}

// node is what one kubelet says, now or lately. An ask that nobody waits for goes on, for
// those who come next.
func (k *kubelets) node(ctx context.Context, node *corev1.Node) (map[string]used, error) {
	now := k.options.Clock.Now()
	k.mu.Lock()
	last := k.kept[node.Name]
	k.mu.Unlock()
	ask, wait := last.turn(now, k.limits.node)
	if !ask {
		return last.given(now, last.err)
	}
	if ctx.Err() != nil {
		return last.given(now, ctx.Err())
	}
	asked := k.group.DoChan(node.Name, func() (any, error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.limits.answer)
		defer cancel()
		k.began(node.Name)
		pods, err := k.ask(limited, node)
		k.ended(node.Name, pods, err)
		return pods, err
	})
	if wait == 0 {
		return last.given(now, errSilent)
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	select {
	case answer := <-asked:
		if answer.Err != nil {
			return last.given(k.options.Clock.Now(), answer.Err)
		}
		return answer.Val.(map[string]used), nil
	case <-waiting.Done():
		return last.given(k.options.Clock.Now(), waiting.Err())
	}
}

// began notes that a kubelet is being asked.
func (k *kubelets) began(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.kept[name]
	s.asked = k.options.Clock.Now()
	k.kept[name] = s
}

// ended keeps what a kubelet has said, or how it has failed.
func (k *kubelets) ended(name string, pods map[string]used, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.kept[name]
	if errors.Is(err, errToken) {
		s.asked = time.Time{}
		k.kept[name] = s
		return
	}
	k.kept[name] = s.ended(k.options.Clock.Now(), pods, err, freshHere)
}

// ask reads one kubelet.
func (k *kubelets) ask(ctx context.Context, node *corev1.Node) (map[string]used, error) {
	address, err := addressOf(node)
	if err != nil {
		return nil, err
	}
	token, err := k.credential(ctx)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/stats/summary?only_cpu_and_memory=true", nil)
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := k.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the kubelet: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		k.mu.Lock()
		k.token = "" // its account may have been made again
		k.mu.Unlock()
		return nil, fmt.Errorf("asking the kubelet: it answers %d: %w", res.StatusCode, errToken)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking the kubelet: it answers %d", res.StatusCode)
	}
	pods, err := take(res.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the kubelet's summary: %w", err)
	}
	return pods, nil
}

// take keeps of a summary what is told to tenants.
func take(body io.Reader) (map[string]used, error) {
	pods := map[string]used{}
	err := elements(body, maxSummary, "pods", func(text []byte) error {
		var p podSummary
		if err := json.Unmarshal(text, &p); err != nil {
			return err
		}
		if p.PodRef.UID == "" || len(p.Containers) > maxContainers {
			return nil
		}
		u := used{}
		for _, c := range p.Containers {
			one := Container{Name: c.Name, StartTime: c.StartTime}
			if c.CPU != nil {
				one.CPUTime, one.CPUNanoCores, one.CPUCoreNanoSeconds = c.CPU.Time, c.CPU.UsageNanoCores, c.CPU.UsageCoreNanoSeconds
			}
			if c.Memory != nil {
				one.MemoryTime, one.WorkingSetBytes = c.Memory.Time, c.Memory.WorkingSetBytes
			}
			u.containers = append(u.containers, one)
		}
		pods[p.PodRef.UID] = u
		return nil
	})
	return pods, err
}

// addressOf is where a node's kubelet listens.
func addressOf(node *corev1.Node) (string, error) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = defaultPort
	}
	for _, a := range node.Status.Addresses {
		if ip := net.ParseIP(a.Address); a.Type == corev1.NodeInternalIP && ip != nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() && !ip.IsMulticast() {
			return net.JoinHostPort(ip.String(), strconv.Itoa(int(port))), nil
		}
	}
	return "", errors.New("finding the kubelet: the node has no InternalIP")
}

// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,resourceNames=pelago-stats,verbs=create,namespace=pelago-system

// credential is a token of the account for kubelets, of the last few minutes.
func (k *kubelets) credential(ctx context.Context) (string, error) {
	now := k.options.Clock.Now()
	k.mu.Lock()
	token, aged := k.token, k.aged
	k.mu.Unlock()
	if token != "" && now.Before(aged) {
		return token, nil
	}
	fresh, err, _ := k.group.Do("/token", func() (any, error) { // no node has a slash in its name
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: k.options.Namespace, Name: AccountName}}
		asked := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenSeconds))}}
		if err := k.options.Writer.SubResource("token").Create(ctx, account, asked); err != nil {
			return "", fmt.Errorf("requesting a token for %s: %w: %w", AccountName, errToken, err)
		}
		k.mu.Lock()
		k.token, k.aged = asked.Status.Token, now.Add(tokenAged)
		k.mu.Unlock()
		return asked.Status.Token, nil
	})
	if err != nil {
		return "", err
	}
	return fresh.(string), nil
}
