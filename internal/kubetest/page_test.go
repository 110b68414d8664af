package kubetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fakeKubectl stands for a provider that has the tunnel of an invitation: what is applied goes to a
// file, and what is asked for is answered as kubectl would.
const fakeKubectl = `#!/bin/sh
case "$*" in
"apply -f -") cat > applied.yaml;;
"wait -n pelago-network networkconfig/invitation-for-rome "*) [ -s applied.yaml ];;
*pelago-auth-tls*) base64 -w0 ca.crt;;
*pelago-cluster-id*) printf 5e0c7a9d-2b41-4f6e-8a3d-6c1f0b9e7d25;;
*.spec.publicKey*) printf mGlzWkYMlWgI6ZSPmPZNAD6bUi0PsTBzNEaGSyLVVzw=;;
*.spec.endpoints*) printf '["203.0.113.9:7101","[2001:db8::9]:7101"]';;
*) echo "kubectl $*" >&2; exit 1;;
esac
`

// TestInBandByObjects runs what the manual says for who peers in band with kubectl alone, and holds
// that an API server takes what that makes, and that both halves belong to one token.
func TestInBandByObjects(t *testing.T) {
	scripts := Scripts(t, filepath.Join("..", "..", "docs", "peering.md"), "### In band, by objects alone")
	if len(scripts) != 2 {
		t.Fatalf("the page has %d scripts, want the provider's and the consumer's", len(scripts))
	}
	dir := t.TempDir()
	run := func(program string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %s: %v\n%s", program, args[0], err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(fakeKubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "ca.key", "-subj", "/CN=authority", "-out", "ca.crt")
	run("/bin/sh", "-euc", scripts[0])
	authority, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pin, err := v1alpha1.CertificateSHA256(authority)
	if err != nil {
		t.Fatal(err)
	}

	var invitation v1alpha1.Invitation
	var secret corev1.Secret
	var peering v1alpha1.Peering
	made := append(objectsIn(t, filepath.Join(dir, "applied.yaml")), objectsIn(t, filepath.Join(dir, "peering.yaml"))...)
	if len(made) != 3 {
		t.Fatalf("%d objects are made, want 3", len(made))
	}
	for i, into := range []client.Object{&invitation, &secret, &peering} {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(made[i].Object, into); err != nil {
			t.Fatal(err)
		}
	}
	token := secret.StringData["token"]
	_, public, err := v1alpha1.InBandKey(token)
	if err != nil || invitation.Spec.InBand == nil || invitation.Spec.InBand.PublicKey != public || invitation.Spec.TokenSHA256 != v1alpha1.TokenHash(token) {
		t.Errorf("the token is %q, of the key %s, %v; the invitation is %+v", token, public, err, invitation.Spec)
	}
	if at := peering.Spec.Consume; at.InBand == nil || strings.Join(at.InBand.Endpoints, " ") != "203.0.113.9:7101 [2001:db8::9]:7101" || at.CASHA256 != pin || at.TokenSecret != secret.Name {
		t.Errorf("the peering is %+v", at)
	}
	if info, err := os.Stat(filepath.Join(dir, "peering.yaml")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the token is %v, %v, want it for its owner alone", info.Mode(), err)
	}

	c := Server(t).Client(t)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.SystemNamespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	for _, o := range made {
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("reader"), client.DryRunAll, client.ForceOwnership); err != nil {
			t.Errorf("applying the %s: %v", o.GetKind(), err)
		}
	}
}

// objectsIn reads the objects of a file.
func objectsIn(t *testing.T, file string) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &o.Object); err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		all = append(all, o)
	}
	return all
}
