package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// peeringFile is a consumer, a provider, and a consumer that nobody can call.
const peeringFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns, load-balancer]
  labels: {topology.kubernetes.io/region: eu-south}
- name: milan
  nodes: 2
  addons: [coredns, load-balancer]
  labels: {topology.kubernetes.io/region: eu-north, hardware: fast}
- name: edge
  nodes: 1
  behindNAT: true
  addons: [coredns]
`

// TestPeering has what two clusters that peer must do, from the line that is pasted
// to nothing being left. The parts share the sandbox; each ends with nobody peered.
func TestPeering(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "peer", File: sandboxFile(t, peeringFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan", "edge")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *continuum)
	}{
		{"OutOfBand", outOfBand},
		{"Invitations", invitations},
		{"Rights", func(t *testing.T, c *continuum) { rightsOf(t, c, nil) }},
		{"LiveOffer", liveOffer},
		{"Terms", terms},
		{"ResourceReader", ownersReader},
		{"Unpeer", unpeer},
		{"TwoKubeconfigs", twoKubeconfigs},
		{"YAML", gitOps},
		{"NAT", consumerBehindNAT},
		{"Exposure", exposure},
		{"WAN", peerOverWAN},
		{"Partition", peerPartition},
		{"Force", force},
		{"Deleted", func(t *testing.T, c *continuum) { deletedAtEveryStep(t, c, "rome", "milan", 3) }},
		{"Fairness", fairness},
		{"Canary", canary},
		{"Token", serviceAccountToken},
		{"Uninstall", uninstall},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c) })
	}
}

// outOfBand holds that one line makes a peering: what each side then knows, that the
// consumer's key is only at home, and that the offer is what the provider has.
func outOfBand(t *testing.T, c *continuum) {
	r := c.peer(t, "rome", "milan")
	t.Logf("one line to peered: %s", r.Took.Round(10*time.Millisecond))

	peering, err := get[v1alpha1.Peering](c, "rome", "", "milan")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionIdentityReady, v1alpha1.ConditionReachable, v1alpha1.ConditionCompatible, v1alpha1.ConditionResourcesAccepted} {
		if got := condition(peering.Status.Conditions, kind); !strings.HasPrefix(got, kind+"=True") {
			t.Errorf("peering milan in rome: %s", got)
		}
	}
	if peering.Status.Remote == nil || peering.Status.Remote.Name != "milan" || !strings.HasPrefix(peering.Status.Remote.KubernetesVersion, "v1.") {
		t.Errorf("rome does not know who milan is: %+v", peering.Status.Remote)
	}
	back, err := get[v1alpha1.Peering](c, "milan", "", "rome")
	if err != nil || !strings.HasPrefix(condition(back.Status.Conditions, v1alpha1.ConditionReady), "Ready=True") {
		t.Errorf("peering rome in milan: %v, %s", err, condition(back.Status.Conditions, v1alpha1.ConditionReady))
	}
	for _, where := range [][2]string{{"rome", "milan"}, {"milan", "rome"}} {
		var shown map[string]any
		if err := json.Unmarshal([]byte(c.Pelago(t, where[0], "status", "-o", "json")), &shown); err != nil {
			t.Errorf("status -o json in %s: %v", where[0], err)
		}
		if text := c.Pelago(t, where[0], "status"); !strings.Contains(text, where[1]) {
			t.Errorf("status in %s does not name %s:\n%s", where[0], where[1], text)
		}
		if text := c.Pelago(t, where[0], "explain", "peering", where[1]); strings.Contains(text, "✗") {
			t.Errorf("explain in %s finds something broken:\n%s", where[0], text)
		}
	}

	secret, err := get[corev1.Secret](c, "rome", v1alpha1.SystemNamespace, v1alpha1.CredentialSecret("milan"))
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Split(string(secret.Data["tls.key"]), "\n")[1]
	if len(key) < 40 {
		t.Fatalf("the credential holds no key")
	}
	if found := c.everything(t, "milan"); strings.Contains(found, key) {
		t.Errorf("milan holds the private key of rome")
	}
	if _, err := get[corev1.Secret](c, "rome", v1alpha1.SystemNamespace, peering.Spec.Consume.TokenSecret); !apierrors.IsNotFound(err) {
		t.Errorf("the token's Secret after the handshake: %v, want it gone", err)
	}

	offer, err := get[v1alpha1.ResourceOffer](c, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.DefaultRequestName)
	if err != nil {
		t.Fatal(err)
	}
	if offer.Spec.Labels["hardware"] != "fast" || offer.Spec.Labels["topology.kubernetes.io/region"] != "eu-north" {
		t.Errorf("the offer has labels %v, want those of milan", offer.Spec.Labels)
	}
	if len(offer.Spec.Shapes) != 1 || offer.Spec.Shapes[0].Nodes != 2 || len(offer.Spec.Shapes[0].Largest) == 0 {
		t.Errorf("the offer has shapes %+v, want one of two nodes with what fits", offer.Spec.Shapes)
	}
}

// invitations holds that wrong, used and expired tokens are refused in one sentence,
// alike, and leave nothing behind.
func invitations(t *testing.T, c *continuum) {
	before := c.objects(t, "edge")
	good := c.Invite(t, "milan", "--ttl", "10m")
	t.Cleanup(func() { c.part(t, "rome", "milan") })
	if r := c.Shell(t, "rome", good); r.Code != 0 {
		t.Fatalf("a good invitation: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	token := strings.Fields(good[strings.Index(good, "--token")+len("--token"):])[0]
	wrong := strings.Replace(good, token, strings.Repeat("A", 43), 1)
	expired := strings.Replace(good, token, strings.Repeat("B", 43), 1)
	late := &v1alpha1.Invitation{
		ObjectMeta: metav1.ObjectMeta{Name: "late"},
		Spec:       v1alpha1.InvitationSpec{TokenSHA256: v1alpha1.TokenHash(strings.Repeat("B", 43)), Expires: metav1.NewTime(time.Now().Add(-time.Minute))},
	}
	if err := c.Clients["milan"].Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Clients["milan"].Delete(context.Background(), late) })
	sentences := map[string]string{}
	for reason, line := range map[string]string{"used": good, "expired": expired, "wrong": wrong} {
		r := c.Shell(t, "edge", line)
		if r.Code == 0 {
			t.Errorf("a %s token makes a peering", reason)
		}
		if strings.Contains(r.Out+r.Errs, strings.Trim(token, "'\"")) {
			t.Errorf("the refusal of a %s token shows the token", reason)
		}
		lines := strings.Split(strings.TrimSpace(r.Errs), "\n")
		sentences[reason] = lines[len(lines)-1]
		t.Logf("%s: %s", reason, sentences[reason])
	}
	if sentences["used"] != sentences["expired"] || sentences["used"] != sentences["wrong"] {
		t.Errorf("the refusals differ: %v", sentences)
	}
	c.asBefore(t, "edge", before)
}

// liveOffer holds that the offer follows what is free: a pod in the provider takes
// exactly its request away, and gives it back.
func liveOffer(t *testing.T, c *continuum) {
	c.peer(t, "rome", "milan")
	free := func() resource.Quantity {
		offer, err := get[v1alpha1.ResourceOffer](c, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.DefaultRequestName)
		if err != nil {
			t.Fatal(err)
		}
		return offer.Spec.Resources["cpu"]
	}
	before := free()
	milan := newPlace(t, c.SandboxHandle, "milan")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "hungry", Namespace: milan.namespace},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "idle", Image: "pelago.local/busybox:1", ImagePullPolicy: corev1.PullNever, Command: []string{"sleep", "3600"},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("300m")}},
		}}},
	}
	if err := c.Clients["milan"].Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want := before.DeepCopy()
	want.Sub(resource.MustParse("300m"))
	changesTo := func(want resource.Quantity) func() error {
		return func() error {
			if got := free(); got.Cmp(want) != 0 {
				return fmt.Errorf("the offer has %s CPU, was %s, want %s", got.String(), before.String(), want.String())
			}
			return nil
		}
	}
	eventually(t, patience, "the offer is smaller by the pod's request", changesTo(want))
	if err := c.Clients["milan"].Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the offer is as before", changesTo(before))
}

// terms holds cordon, drain, uncordon, and requests of amounts.
func terms(t *testing.T, c *continuum) {
	c.peer(t, "rome", "milan")
	request := &v1alpha1.ResourceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: v1alpha1.PeeringNamespace("milan")},
		Spec:       v1alpha1.ResourceRequestSpec{Resources: v1alpha1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}},
	}
	c.Pelago(t, "milan", "cordon", "tenant", "rome")
	if err := c.Clients["rome"].Create(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	is := func(name, want string) func() error {
		return func() error {
			r, err := get[v1alpha1.ResourceRequest](c, "rome", request.Namespace, name)
			if err != nil {
				return err
			}
			if got := condition(r.Status.Conditions, v1alpha1.ConditionAccepted); got != want {
				return fmt.Errorf("request %s: %s %s, want %s", name, got, condition(r.Status.Conditions, v1alpha1.ConditionOffered), want)
			}
			return nil
		}
	}
	eventually(t, patience, "a new request of a cordoned tenant is refused", is("small", "Accepted=False(Cordoned)"))
	eventually(t, 5*time.Second, "what was there stays", is("default", "Accepted=True(Accepted)"))
	c.Pelago(t, "milan", "uncordon", "tenant", "rome")
	eventually(t, patience, "the request is accepted", is("small", "Accepted=True(Accepted)"))
	offer, err := get[v1alpha1.ResourceOffer](c, "rome", request.Namespace, "small")
	if err != nil {
		t.Fatal(err)
	}
	if cpu := offer.Spec.Resources["cpu"]; cpu.Cmp(resource.MustParse("100m")) != 0 {
		t.Errorf("100m CPU asked for, %s offered", cpu.String())
	}
	c.Pelago(t, "milan", "drain", "tenant", "rome")
	eventually(t, patience, "drained", is("default", "Accepted=False(Drained)"))
	c.Pelago(t, "milan", "uncordon", "tenant", "rome")
	eventually(t, patience, "active again", is("default", "Accepted=True(Accepted)"))
}

// unpeer holds that both sides are as before, whoever ends the peering.
func unpeer(t *testing.T, c *continuum) {
	rome, milan := c.objects(t, "rome"), c.objects(t, "milan")
	for _, by := range [][2]string{{"rome", "milan"}, {"milan", "rome"}} {
		t.Run("By "+by[0], func(t *testing.T) {
			c.peer(t, "rome", "milan")
			r := c.TryPelago(t, by[0], "unpeer", by[1])
			if r.Code != 0 {
				t.Fatalf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
			}
			t.Logf("unpeer took %s", r.Took.Round(10*time.Millisecond))
			c.asBefore(t, "rome", rome)
			c.asBefore(t, "milan", milan)
		})
	}
}

// twoKubeconfigs holds the path for who has access to both clusters, one way and both.
func twoKubeconfigs(t *testing.T, c *continuum) {
	rome, milan := c.objects(t, "rome"), c.objects(t, "milan")
	t.Cleanup(func() { c.part(t, "rome", "milan") })
	c.Pelago(t, "rome", "peer", "--remote-kubeconfig", c.Files["milan"], "--bidirectional")
	for _, side := range [][2]string{{"rome", "milan"}, {"milan", "rome"}} {
		peering, err := get[v1alpha1.Peering](c, side[0], "", side[1])
		if err != nil {
			t.Fatal(err)
		}
		if len(peering.Status.Roles) != 2 || !strings.HasPrefix(condition(peering.Status.Conditions, v1alpha1.ConditionReady), "Ready=True") {
			t.Errorf("%s in %s: roles %v, %s", side[1], side[0], peering.Status.Roles, condition(peering.Status.Conditions, v1alpha1.ConditionReady))
		}
	}
	c.Pelago(t, "rome", "unpeer", "milan")
	c.asBefore(t, "rome", rome)
	c.asBefore(t, "milan", milan)
}

// gitOps holds that objects alone make a peering: those that generate prints, and those
// somebody wrote himself, at the consumer before the provider.
func gitOps(t *testing.T, c *continuum) {
	t.Cleanup(func() { c.part(t, "rome", "milan") })
	manifests := filepath.Join(t.TempDir(), "peering.yaml")
	apply := func(cluster, text string) {
		t.Helper()
		if err := os.WriteFile(manifests, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Kubectl(t, cluster, "apply", "-f", manifests)
	}
	apply("rome", c.Pelago(t, "milan", "generate", "peer-command", "-o", "yaml"))
	c.Kubectl(t, "rome", "wait", "peering/milan", "--for=condition=Ready", "--timeout=3m")
	peering, err := get[v1alpha1.Peering](c, "rome", "", "milan")
	if err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "rome", "delete", "peering", "milan", "--timeout=3m")

	token := strings.Repeat("handmade", 5) + "abc"
	apply("rome", fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: from-git, namespace: pelago-system}
stringData: {token: %s}
---
apiVersion: pelago.dev/v1alpha1
kind: Peering
metadata: {name: milan}
spec:
  clusterID: %s
  consume: {authURL: "%s", caSHA256: %s, tokenSecret: from-git}
`, token, peering.Spec.ClusterID, peering.Spec.Consume.AuthURL, peering.Spec.Consume.CASHA256))
	c.Kubectl(t, "rome", "wait", "peering/milan", "--for=condition=Stalled", "--timeout=3m")
	apply("milan", fmt.Sprintf(`apiVersion: pelago.dev/v1alpha1
kind: Invitation
metadata: {name: for-rome}
spec:
  tokenSHA256: %s
  expires: %q
  consumer: capital
`, v1alpha1.TokenHash(token), time.Now().Add(time.Hour).UTC().Format(time.RFC3339)))
	t.Cleanup(func() { c.Kubectl(t, "milan", "delete", "invitation", "for-rome", "--ignore-not-found") })
	c.Kubectl(t, "rome", "wait", "peering/milan", "--for=condition=Ready", "--timeout=3m")
	if _, err := get[v1alpha1.Tenant](c, "milan", "", "capital"); err != nil {
		t.Errorf("the tenant has not the name of the invitation: %v", err)
	}
	c.Kubectl(t, "rome", "delete", "peering", "milan", "--timeout=3m")
}

// serviceAccountToken holds that a provider whose API server signs no certificates is
// as good: the same line, rights and end.
func serviceAccountToken(t *testing.T, c *continuum) {
	c.settings(t, "milan", func(values map[string]any) { values["identity"] = map[string]any{"type": "ServiceAccountToken"} })
	before := c.objects(t, "milan")
	eventually(t, patience, "milan gives tokens", func() error {
		c.peer(t, "rome", "milan")
		peering, err := get[v1alpha1.Peering](c, "rome", "", "milan")
		if err == nil && peering.Status.Credential.Type != v1alpha1.CredentialToken {
			err = fmt.Errorf("rome holds a %s", peering.Status.Credential.Type)
		}
		c.part(t, "rome", "milan")
		return err
	})
	rightsOf(t, c, map[string][]string{"serviceaccounts/token": {"create"}})
	c.asBefore(t, "milan", before)
}

// uninstall holds that Pelago goes only when nobody is peered, and then leaves nothing.
func uninstall(t *testing.T, c *continuum) {
	if r := c.Shell(t, "rome", c.Invite(t, "milan")); r.Code != 0 {
		t.Fatalf("peering: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	for _, cluster := range []string{"rome", "milan"} {
		if r := c.TryPelago(t, cluster, "uninstall"); r.Code == 0 || !strings.Contains(r.Errs, "unpeer") {
			t.Errorf("uninstall in %s while peered: exit %d, %q; want a refusal that names unpeer", cluster, r.Code, r.Errs)
		}
	}
	c.Pelago(t, "rome", "unpeer", "milan")
	for _, cluster := range []string{"rome", "milan"} {
		c.Pelago(t, cluster, "uninstall", "--purge")
		eventually(t, patience, "nothing of Pelago is left in "+cluster, func() error {
			for _, o := range c.objects(t, cluster) {
				if strings.Contains(o, "pelago") {
					return fmt.Errorf("%s is left", o)
				}
			}
			return nil
		})
	}
}

// consumerBehindNAT holds that a consumer needs only to call.
func consumerBehindNAT(t *testing.T, c *continuum) {
	before := c.objects(t, "edge")
	c.peer(t, "edge", "milan")
	c.Pelago(t, "milan", "unpeer", "edge")
	c.asBefore(t, "edge", before)
}

// exposure holds the ways to reach the authentication endpoint: a load balancer, and
// any address the owner says leads there. The node port is what the other parts use.
func exposure(t *testing.T, c *continuum) {
	service, err := get[corev1.Service](c, "milan", v1alpha1.SystemNamespace, v1alpha1.AuthService)
	if err != nil {
		t.Fatal(err)
	}
	if service.Spec.Type != corev1.ServiceTypeNodePort {
		t.Fatalf("the endpoint is a %s; this part expects a node port to begin with", service.Spec.Type)
	}
	patch := func(kind corev1.ServiceType) {
		t.Helper()
		c.Kubectl(t, "milan", "patch", "service", v1alpha1.AuthService, "-n", v1alpha1.SystemNamespace, "-p", fmt.Sprintf(`{"spec":{"type":%q}}`, kind))
	}
	addressOf := func(line string) string {
		return strings.Fields(line[strings.Index(line, "--auth-url")+len("--auth-url"):])[0]
	}
	t.Run("LoadBalancer", func(t *testing.T) {
		patch(corev1.ServiceTypeLoadBalancer)
		t.Cleanup(func() { patch(corev1.ServiceTypeNodePort) })
		var balancer string
		eventually(t, patience, "the load balancer has an address", func() error {
			service, err := get[corev1.Service](c, "milan", v1alpha1.SystemNamespace, v1alpha1.AuthService)
			if err == nil && len(service.Status.LoadBalancer.Ingress) == 0 {
				err = fmt.Errorf("status %+v", service.Status)
			}
			if err == nil {
				balancer = service.Status.LoadBalancer.Ingress[0].IP
			}
			return err
		})
		line := c.Invite(t, "milan")
		if !strings.Contains(addressOf(line), balancer) {
			t.Errorf("the invitation leads to %s, want the load balancer at %s", addressOf(line), balancer)
		}
		t.Cleanup(func() { c.part(t, "edge", "milan") })
		if r := c.Shell(t, "edge", line); r.Code != 0 {
			t.Errorf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
	})
	t.Run("Override", func(t *testing.T) {
		own := fmt.Sprintf("https://%s:%d", statusOf(t, c.SandboxHandle).node(t, "milan", "milan-2").Addresses[0], service.Spec.Ports[0].NodePort)
		c.settings(t, "milan", func(values map[string]any) { values["auth"] = map[string]any{"url": own} })
		line := c.Invite(t, "milan")
		if addressOf(line) != own {
			t.Errorf("the invitation leads to %s, want %s", addressOf(line), own)
		}
		t.Cleanup(func() { c.part(t, "rome", "milan") })
		if r := c.Shell(t, "rome", line); r.Code != 0 {
			t.Errorf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
		}
	})
}

// peerOverWAN holds the same over a link that is far and loses packets.
func peerOverWAN(t *testing.T, c *continuum) {
	c.Run(t, "link", "set", "rome", "milan", "--delay", "25ms", "--loss", "1%")
	t.Cleanup(func() { c.Run(t, "link", "set", "rome", "milan") })
	r := c.peer(t, "rome", "milan")
	t.Logf("one line to peered at 50 ms and 1 %% loss: %s", r.Took.Round(10*time.Millisecond))
	r = c.TryPelago(t, "rome", "unpeer", "milan")
	if r.Code != 0 {
		t.Fatalf("unpeer: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	t.Logf("unpeer at 50 ms and 1 %% loss: %s", r.Took.Round(10*time.Millisecond))
}

// everything is all Pelago objects and Secrets of a cluster, with what its programs
// logged and the events it has, as text to search in.
func (c *continuum) everything(t *testing.T, cluster string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var text strings.Builder
	for _, args := range [][]string{
		{"get", "peerings,invitations,identities,tenants,resourcerequests,resourceoffers,configmaps,events,csr,leases,secrets", "-A", "-o", "yaml"},
		{"logs", "-n", v1alpha1.SystemNamespace, "-l", "app.kubernetes.io/part-of=pelago", "--all-containers", "--tail=-1", "--prefix"},
		{"logs", "-n", v1alpha1.NetworkNamespace, "-l", "app.kubernetes.io/part-of=pelago", "--all-containers", "--tail=-1", "--prefix"},
	} {
		out, err := c.Try(ctx, append([]string{"kubectl", cluster, "--"}, args...)...)
		if err != nil {
			t.Errorf("reading %s of %s: %v", args[1], cluster, err)
		}
		text.WriteString(out)
	}
	return text.String()
}
