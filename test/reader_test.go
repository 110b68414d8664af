package test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// readerImage is the resource reader of ./reader.
	readerImage = "pelago.test/reader:1"
	// readerName is what its objects are called.
	readerName = "resource-reader"
)

// ownersReader holds that a provider whose owner decides by a program of his own offers
// what that grants: nothing before the program has ever answered. When it hangs, lies, ends or
// is away later, the provider goes on with its last good answer, and what is in use stays. It
// says so, and heals by itself.
func ownersReader(t *testing.T, c *continuum) {
	c.Run(t, "image", "build", readerImage, "--go", "./reader")
	c.Run(t, "image", "load", readerImage, "milan")
	deployment := c.runReader(t, "milan")
	c.Pelago(t, "milan", "install", "--timeout", "3m30s", "--set", "resourceReader.address="+readerName+"."+v1alpha1.SystemNamespace+".svc:8443", "--set", "resourceReader.secret="+readerName)
	t.Cleanup(func() {
		c.Pelago(t, "milan", "install", "--timeout", "3m30s", "--set", "resourceReader.address=", "--set", "resourceReader.secret=")
	})
	scale := func(replicas int32) {
		t.Helper()
		before := deployment.DeepCopy()
		deployment.Spec.Replicas = &replicas
		if err := c.Clients["milan"].Patch(t.Context(), deployment, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { c.part(t, "rome", "milan") })
	if r := c.Shell(t, "rome", c.Invite(t, "milan")+" --default-request=false"); r.Code != 0 { // nothing will be offered yet
		t.Fatalf("peering: exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	c.Kubectl(t, "rome", "patch", "peering", "milan", "--type=merge", "-p", `{"spec":{"consume":{"defaultRequest":true}}}`)
	c.nothingGranted(t)
	scale(1)

	is := func(what, said string) {
		t.Helper()
		eventually(t, patience, what, func() error {
			tenant, err := get[v1alpha1.Tenant](c, "milan", "", "rome")
			if err != nil {
				return err
			}
			offer, err := get[v1alpha1.ResourceOffer](c, "rome", v1alpha1.PeeringNamespace("milan"), v1alpha1.DefaultRequestName)
			if err != nil {
				return err
			}
			got, cpu := condition(tenant.Status.Conditions, v1alpha1.ConditionReaderAnswering), offer.Spec.Resources["cpu"]
			if !strings.HasPrefix(got, v1alpha1.ConditionReaderAnswering+"="+said) || cpu.MilliValue() != 2000 {
				return fmt.Errorf("%s, and %s CPUs are offered", got, cpu.String())
			}
			return nil
		})
		status := c.TryPelago(t, "milan", "status").Out
		if strings.HasPrefix(said, "False") != strings.Contains(status, "resource reader") {
			t.Errorf("%s: status in milan:\n%s", what, status)
		}
	}
	does := func(word string) {
		t.Helper()
		c.patchTenant(t, "milan", "rome", func(tenant *v1alpha1.Tenant) {
			metav1.SetMetaDataLabel(&tenant.ObjectMeta, "example.com/does", word)
		})
	}
	is("two CPUs are granted and offered", "True")
	for _, wrong := range []string{"hang", "lie", "end"} {
		does(wrong)
		is("the last good answer holds: "+wrong, "False(LastAnswer)")
		does("well")
		is("it is well again after: "+wrong, "True")
	}
	scale(0)
	is("the last good answer holds: away", "False(LastAnswer)")
	scale(1)
	is("it is back", "True")
}

// nothingGranted waits until milan says that the program has never answered for rome, and holds
// that it offers nothing then.
func (c *continuum) nothingGranted(t *testing.T) {
	t.Helper()
	eventually(t, patience, "nothing is offered while the program was never there", func() error {
		tenant, err := get[v1alpha1.Tenant](c, "milan", "", "rome")
		if err != nil {
			return err
		}
		request, err := get[v1alpha1.ResourceRequest](c, "milan", v1alpha1.TenantNamespace("rome"), v1alpha1.DefaultRequestName)
		if err != nil {
			return err
		}
		got, offered := condition(tenant.Status.Conditions, v1alpha1.ConditionReaderAnswering), condition(request.Status.Conditions, v1alpha1.ConditionOffered)
		if got != v1alpha1.ConditionReaderAnswering+"=False(OnlyUsed)" || !strings.HasPrefix(offered, v1alpha1.ConditionOffered+"=False") {
			return fmt.Errorf("%s, %s", got, offered)
		}
		return nil
	})
	// A manager from before the installation may have made one in its last seconds, which is emptied then.
	offer, err := get[v1alpha1.ResourceOffer](c, "milan", v1alpha1.TenantNamespace("rome"), v1alpha1.DefaultRequestName)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	for name, amount := range offer.Spec.Resources {
		if !amount.IsZero() {
			t.Errorf("nothing is granted, and %s %s are offered", amount.String(), name)
		}
	}
	if status := c.TryPelago(t, "milan", "status").Out; !strings.Contains(status, "resource reader") {
		t.Errorf("the program was never there, and status in milan says:\n%s", status)
	}
}

// runReader lets the resource reader be run in a cluster, with a Secret that both sides use, and
// removes it when the test ends. It does not run yet.
func (c *continuum) runReader(t *testing.T, cluster string) *appsv1.Deployment {
	t.Helper()
	labels := map[string]string{"app": readerName}
	about := metav1.ObjectMeta{Name: readerName, Namespace: v1alpha1.SystemNamespace}
	yes, no, user, moment, none := true, false, int64(65532), int64(1), int32(0)
	deployment := &appsv1.Deployment{ObjectMeta: about, Spec: appsv1.DeploymentSpec{
		Replicas: &none,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			AutomountServiceAccountToken:  &no,
			TerminationGracePeriodSeconds: &moment,
			Volumes:                       []corev1.Volume{{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: readerName}}}},
			Containers: []corev1.Container{{
				Name: "reader", Image: readerImage, ImagePullPolicy: corev1.PullNever, Command: []string{"/reader"},
				VolumeMounts: []corev1.VolumeMount{{Name: "tls", MountPath: "/tls"}},
				SecurityContext: &corev1.SecurityContext{ // as the namespace demands
					RunAsUser: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no,
					Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
			}},
		}},
	}}
	t.Cleanup(func() { // later parts look at what there is
		eventually(t, patience, "the resource reader is gone", func() error {
			var pods corev1.PodList
			err := c.Clients[cluster].List(context.Background(), &pods, client.InNamespace(v1alpha1.SystemNamespace), client.MatchingLabels(labels))
			if err == nil && len(pods.Items) > 0 {
				err = fmt.Errorf("%s is there", pods.Items[0].Name)
			}
			return err
		})
	})
	for _, obj := range []client.Object{
		&corev1.Secret{ObjectMeta: about, Data: readerSecret(t)},
		&corev1.Service{ObjectMeta: about, Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 8443, TargetPort: intstr.FromInt32(8443)}}}},
		deployment,
	} {
		if err := c.Clients[cluster].Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := c.Clients[cluster].Delete(ctx, obj, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
				t.Errorf("deleting %T %s: %v", obj, readerName, err)
			}
		})
	}
	return deployment
}

// readerSecret is a certificate that is its own authority, and good for both sides.
func readerSecret(t *testing.T) map[string][]byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: readerName}, DNSNames: []string{readerName + "." + v1alpha1.SystemNamespace + ".svc"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return map[string][]byte{"ca.crt": text, "tls.crt": text, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})}
}
