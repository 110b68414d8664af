package auth

import (
	"context"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestAnsweredElsewhere: another attempt with the same request has its certificate, and
// takes the signing request away before this one begins to watch it. The signer has not
// failed.
func TestAnsweredElsewhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	w.setSigner(nil) // it must not be faster than the other attempt
	w.shake = w.rebuilt(interceptor.NewClient(w.client, interceptor.Funcs{
		Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			if _, is := list.(*certificatesv1.CertificateSigningRequestList); is {
				o := client.ListOptions{}
				o.ApplyOptions(opts)
				name, _ := o.FieldSelector.RequiresExactMatch("metadata.name")
				if err := c.Delete(ctx, &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
					return nil, err
				}
			}
			return c.Watch(ctx, list, opts...)
		},
	}))
	_, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if reasonOf(err) != v1alpha1.ReasonWaiting || err.Error() != "another request for the same credential has just been answered" {
		t.Errorf("got %v", err)
	}
	id := &v1alpha1.Identity{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(w.name("rome")), Name: v1alpha1.IdentityName}, id); err != nil || failedSigning(id) {
		t.Errorf("the Identity says %s, %v", conditionReason(id.Status.Conditions, v1alpha1.ConditionIssued), err)
	}
}
