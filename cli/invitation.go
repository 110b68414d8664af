package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
	"github.com/pelago-dev/pelago/internal/home"
)

const (
	// caKey is the key of the authority in the Secret AuthTLSName.
	caKey = "ca.crt"
	// tokenBytes is how much randomness a token has.
	tokenBytes = 32
	// hashInName is how much of the token's hash is in the name of an Invitation.
	hashInName = 12
	// startLimit is how long to wait for what a fresh installation makes by itself.
	startLimit = 30 * time.Second
)

// maxInBandConsumer is how long a consumer's name may be to be part of that of an invitation in band,
// which is part of that of a Service.
const maxInBandConsumer = 45 - len("-0123456789ab")

// invitation is what a provider tells a consumer. Its token is secret.
type invitation struct {
	Name      string // what the provider calls itself
	ClusterID string
	AuthURL   string
	CASHA256  string
	Token     string
	// Tunnel is where the provider is reached in band, in place of AuthURL.
	Tunnel v1alpha1.InBand

	// choice is what the consumer lets the provider's pods do, and no part of the line.
	choice

	object string    // name of the Invitation at the provider
	until  time.Time // when it ends
}

// line is the command that accepts the invitation. All its words are checked to be
// free of what a shell would act upon.
func (i invitation) line() string {
	at := "--auth-url " + i.AuthURL
	if i.inBand() {
		at = i.ofTunnel()
	}
	return fmt.Sprintf("pelago peer %s --cluster-id %s %s --ca-sha256 %s --token %s", i.Name, i.ClusterID, at, i.CASHA256, i.Token)
}

// terms are what an invitation grants.
type terms struct {
	consumer string
	ttl      time.Duration
	inBand   bool
	direct   bool
}

// invite makes an Invitation in a cluster and returns what to tell the consumer.
func (e *Env) invite(ctx context.Context, c *Cluster, t terms) (invitation, error) {
	settings, err := c.settings(ctx)
	if err != nil {
		return invitation{}, err
	}
	i := invitation{Name: settings.Cluster.Name, until: e.Clock.Now().Add(t.ttl).Truncate(time.Second)}
	if err := v1alpha1.CheckClusterName(i.Name); err != nil {
		return invitation{}, fmt.Errorf("reading this cluster's settings: %w", err)
	}
	if t.inBand {
		err = c.hasNetwork(ctx, i.Name)
	} else {
		i.AuthURL, err = c.called(ctx, settings)
	}
	if err != nil {
		return invitation{}, err
	}
	if err := e.introduce(ctx, c, &i); err != nil {
		return invitation{}, err
	}
	if i.Token, err = newToken(e.Rand); err != nil {
		return invitation{}, err
	}
	hash := v1alpha1.TokenHash(i.Token)
	i.object = "invitation-" + hash[:hashInName]
	if t.consumer != "" && (!t.inBand || len(t.consumer) <= maxInBandConsumer) {
		i.object = t.consumer + "-" + hash[:hashInName]
	}
	object := &v1alpha1.Invitation{
		ObjectMeta: metav1.ObjectMeta{Name: i.object, Labels: map[string]string{v1alpha1.LabelManagedBy: managedBy}},
		Spec:       v1alpha1.InvitationSpec{TokenSHA256: hash, Expires: metav1.NewTime(i.until), Consumer: t.consumer},
	}
	if t.inBand {
		_, public, err := v1alpha1.InBandKey(i.Token)
		if err != nil {
			return invitation{}, err
		}
		object.Spec.InBand = &v1alpha1.InvitationInBand{PublicKey: public}
	}
	if t.direct {
		object.Spec.Tenant = &v1alpha1.TenantTerms{DirectPaths: true}
	}
	if err := c.Client.Create(ctx, object, fieldOwner); err != nil {
		return invitation{}, describe(fmt.Errorf("making the invitation: %w", err), c)
	}
	if !t.inBand {
		return i, nil
	}
	if object.Spec.InBand == nil {
		err = fmt.Errorf("the Pelago in the cluster at %s knows nothing of tunnels of invitations; upgrade it: pelago install", c.Server)
	} else {
		err = e.tunnel(ctx, c, &i, settings.Network)
	}
	if err != nil {
		return invitation{}, i.takeBack(ctx, c, err)
	}
	return i, nil
}

// called is where this cluster accepts invitations of those who reach it.
func (c *Cluster) called(ctx context.Context, settings home.Config) (string, error) {
	if settings.APIServer.URL == "" {
		return "", fmt.Errorf("this cluster cannot provide: it does not know its API server's address; run: pelago install --api-server-url https://HOST:PORT, or invite through the tunnel: --in-band")
	}
	url, err := c.endpoint(ctx, settings)
	if err != nil {
		return "", err
	}
	if err := checkAuthURL(url); err != nil {
		return "", fmt.Errorf("the address of the authentication endpoint cannot be used: %w", err)
	}
	return url, nil
}

// introduce fills in what the programs in the cluster make when they start for the
// first time: the cluster's id and the authority of the endpoint.
func (e *Env) introduce(ctx context.Context, c *Cluster, i *invitation) error {
	ctx, cancel := bound(ctx, startLimit)
	defer cancel()
	err := await(ctx, e, c.Client, &corev1.ConfigMapList{}, inSystem(v1alpha1.ClusterIDName), func(m *corev1.ConfigMap) (bool, error) {
		if m != nil {
			i.ClusterID = m.Data[v1alpha1.ClusterIDKey]
		}
		return i.ClusterID != "", nil
	})
	if err != nil {
		return ended(describe(err, c), "giving this cluster an id", startLimit, "", "see whether pelago-manager runs: pelago status")
	}
	err = await(ctx, e, c.Client, &corev1.SecretList{}, inSystem(v1alpha1.AuthTLSName), func(s *corev1.Secret) (bool, error) {
		if s == nil || len(s.Data[caKey]) == 0 {
			return false, nil
		}
		var err error
		if i.CASHA256, err = v1alpha1.CertificateSHA256(s.Data[caKey]); err != nil {
			err = fmt.Errorf("the Secret %s/%s does not hold a certificate: %w; delete it and restart pelago-auth", s.Namespace, s.Name, err)
		}
		return true, err
	})
	return ended(describe(err, c), "making the authority of the authentication endpoint", startLimit, "", "see whether pelago-auth runs: pelago status")
}

// withdraw removes an invitation that nobody has to use any more.
func (i invitation) withdraw(ctx context.Context, c *Cluster) error {
	object := &v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: i.object}}
	return client.IgnoreNotFound(c.Client.Delete(ctx, object))
}

// takeBack removes an invitation of which nothing came, and says why.
func (i invitation) takeBack(ctx context.Context, c *Cluster, why error) error {
	undo, cancel := bound(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if failed := i.withdraw(undo, c); failed != nil {
		return fmt.Errorf("%w; withdrawing the invitation failed too: %w; at the provider: kubectl delete invitation %s", why, failed, i.object)
	}
	return why
}

// newToken makes a token.
func newToken(random io.Reader) (string, error) {
	var raw [tokenBytes]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(raw[:]), nil
}

// manifests are the objects that accept an invitation at the consumer.
func (i invitation) manifests(consume v1alpha1.Consume) []client.Object {
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.SystemNamespace,
			Name:      "invitation-" + i.Name + "-" + v1alpha1.TokenHash(i.Token)[:8],
			Labels:    map[string]string{v1alpha1.LabelManagedBy: managedBy, v1alpha1.LabelPeering: i.Name},
		},
		Type:       corev1.SecretTypeOpaque,
		StringData: map[string]string{"token": i.Token},
	}
	consume.AuthURL, consume.CASHA256, consume.TokenSecret = i.AuthURL, i.CASHA256, secret.Name
	if i.inBand() {
		consume.InBand = i.Tunnel.DeepCopy()
	}
	peering := &v1alpha1.Peering{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Peering"},
		ObjectMeta: metav1.ObjectMeta{Name: i.Name, Labels: map[string]string{v1alpha1.LabelManagedBy: managedBy}},
		Spec:       v1alpha1.PeeringSpec{ClusterID: i.ClusterID, Consume: &consume},
	}
	i.into(&peering.Spec)
	return []client.Object{secret, peering}
}

// print writes the manifests, without what only a server fills in.
func (i invitation) print(e *Env, format string, consume v1alpha1.Consume) error {
	var all []map[string]any
	for _, object := range i.manifests(consume) {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return fmt.Errorf("writing %s: %w", object.GetName(), err)
		}
		delete(fields, "status")
		unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
		all = append(all, fields)
	}
	return screen.Documents(e.Out, format, all)
}

// complete says which parts of an invitation were not given.
func (i invitation) complete() error {
	type part struct{ name, value string }
	at := []part{{"--auth-url", i.AuthURL}}
	if i.inBand() {
		at = []part{{"--tunnel-key", i.Tunnel.PublicKey}, {"--tunnel-endpoint", strings.Join(i.Tunnel.Endpoints, ",")}}
	}
	parts := slices.Concat([]part{{"NAME", i.Name}, {"--cluster-id", i.ClusterID}}, at, []part{{"--ca-sha256", i.CASHA256}, {"--token", i.Token}})
	var missing []string
	for _, part := range parts {
		if part.value == "" {
			missing = append(missing, part.name)
		}
	}
	last := len(missing) - 1
	switch {
	case last < 0:
		return nil
	case len(missing) == len(parts):
		return usage("there is no invitation; run at the provider: pelago generate peer-command, and here the line it prints")
	case last == 0:
		return usage("%s is missing; copy the whole line that pelago generate peer-command printed", missing[0])
	}
	return usage("%s and %s are missing; copy the whole line that pelago generate peer-command printed", strings.Join(missing[:last], ", "), missing[last])
}

// check says which part of an invitation cannot be right, in the words of the flags.
func (i invitation) check() error {
	if err := v1alpha1.CheckClusterName(i.Name); err != nil {
		return usage("NAME: %w", err)
	}
	switch {
	case !uuidPattern.MatchString(i.ClusterID):
		return usage("--cluster-id %q is not a cluster's id; copy the whole line that pelago generate peer-command printed", i.ClusterID)
	case !hashPattern.MatchString(i.CASHA256):
		return usage("--ca-sha256 has to be 64 hexadecimal digits; copy the whole line that pelago generate peer-command printed")
	case !tokenPattern.MatchString(i.Token):
		return usage("--token is not a whole token; copy the whole line that pelago generate peer-command printed")
	}
	if i.inBand() {
		if _, _, err := v1alpha1.InBandKey(i.Token); err != nil { // it makes the tunnel's key
			return usage("--token is not a whole token; copy the whole line that pelago generate peer-command printed")
		}
		if err := checkTunnel(i.Tunnel); err != nil {
			return usage("%w", err)
		}
		return nil
	}
	if err := checkAuthURL(i.AuthURL); err != nil {
		return usage("--auth-url: %w", err)
	}
	return nil
}

// bare says that nothing is known of an invitation but what to call the provider.
func (i invitation) bare() bool {
	return i.ClusterID == "" && i.AuthURL == "" && i.CASHA256 == "" && i.Token == "" && !i.inBand()
}
