package test

import (
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// tokens holds that a pod at milan has no token unless its namespace in rome says so, that
// it then has rome's, bound to it, with rome's authority and namespace beside it, and that
// the token dies with the pod.
func tokens(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.eventually(t, offloadLimit, "the service account default is there", func() error {
		_, err := get[corev1.ServiceAccount](c, "rome", s.name, "default")
		return err
	})
	const where = "/var/run/secrets/kubernetes.io/serviceaccount/"
	s.create(t, s.script("denied", "ls "+where+" 2>&1; echo looked; while sleep 1; do :; done"))
	s.running(t, "denied")
	s.eventually(t, offloadLimit, "a pod of a namespace that says nothing has no token", func() error {
		out, err := s.kubectl(t, "logs", "denied")
		if err == nil && (!strings.Contains(out, "looked") || strings.Contains(out, "token")) {
			err = fmt.Errorf("it sees %q", out)
		}
		return err
	})
	s.tokens(t, v1alpha1.TokensAllow)
	pod := s.script("allowed", "while sleep 1; do :; done")
	s.create(t, pod)
	pod = s.running(t, "allowed")
	read := func(file string) string {
		t.Helper()
		var out string
		s.eventually(t, offloadLimit, "the pod can read "+file, func() (err error) {
			out, err = s.kubectl(t, "exec", "allowed", "--", "cat", where+file)
			return err
		})
		return out
	}
	authority, err := get[corev1.ConfigMap](c, "rome", s.name, "kube-root-ca.crt")
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(read("ca.crt")) != strings.TrimSpace(authority.Data["ca.crt"]) {
		t.Error("the authority that the pod sees is not rome's")
	}
	if namespace := strings.TrimSpace(read("namespace")); namespace != s.name {
		t.Errorf("the namespace that the pod sees is %q, want %s", namespace, s.name)
	}
	token := strings.TrimSpace(read("token"))
	review := func(cluster string) (authenticationv1.TokenReviewStatus, error) {
		r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		err := c.Clients[cluster].Create(t.Context(), r)
		return r.Status, err
	}
	is, err := review("rome")
	if err != nil || is.User.Username != "system:serviceaccount:"+s.name+":default" ||
		strings.Join(is.User.Extra["authentication.kubernetes.io/pod-uid"], "") != string(pod.UID) {
		t.Errorf("the token is good for %q %v, %s, %v", is.User.Username, is.User.Extra, is.Error, err)
	}
	if is, err := review("milan"); err != nil || is.Authenticated {
		t.Errorf("the token opens milan: %t, %v", is.Authenticated, err)
	}
	made := s.name + "-rome"
	if _, err := get[corev1.Secret](c, "milan", made, v1alpha1.TokenSecret(string(pod.UID))); err != nil {
		t.Errorf("the Secret with the tokens: %v", err)
	}
	if err := c.Clients["rome"].Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, patience, "the token and its Secret are gone with the pod", func() error {
		if _, err := get[corev1.Secret](c, "milan", made, v1alpha1.TokenSecret(string(pod.UID))); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the Secret is there: %v", err)
		}
		is, err := review("rome")
		if err == nil && is.Authenticated {
			err = fmt.Errorf("the token is still good")
		}
		return err
	})
}
