package test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	unreachableLimit = 15 * time.Second // a lost peer is known
	reachableLimit   = 15 * time.Second // a peer that is back is known: at most 5 s, which internal/fleet holds, and what a busy machine adds
	forceLimit       = 30 * time.Second // home is clean after unpeer --force
)

// peerPartition holds that a lost peer is noticed, and that healing is enough.
func peerPartition(t *testing.T, c *continuum) {
	c.peer(t, "rome", "milan")
	reachable := func(want string) func() error {
		return func() error {
			peering, err := get[v1alpha1.Peering](c, "rome", "", "milan")
			if err != nil {
				return err
			}
			if got := condition(peering.Status.Conditions, v1alpha1.ConditionReachable); got != want {
				return fmt.Errorf("%s, want %s", got, want)
			}
			return nil
		}
	}
	c.Run(t, "link", "cut", "rome", "milan")
	t.Cleanup(func() { c.Run(t, "link", "heal", "rome", "milan") })
	begin := time.Now()
	eventually(t, unreachableLimit, "rome sees that milan is away", reachable("Reachable=False(PeerUnreachable)"))
	t.Logf("noticed after %s", time.Since(begin).Round(100*time.Millisecond))
	if text := c.Pelago(t, "rome", "explain", "peering", "milan"); !strings.Contains(text, "✗") {
		t.Errorf("explain finds nothing broken while the link is cut:\n%s", text)
	}
	c.Run(t, "link", "heal", "rome", "milan")
	begin = time.Now()
	eventually(t, reachableLimit, "rome sees that milan is back", reachable("Reachable=True(PeerReachable)"))
	t.Logf("back after %s", time.Since(begin).Round(100*time.Millisecond))
}

// force holds that home can be cleaned while the provider is away, that it is told
// when it is back, and that a tombstone can be forgotten.
func force(t *testing.T, c *continuum) {
	rome, milan := c.objects(t, "rome"), c.objects(t, "milan")
	tombstones := func() ([]corev1.Secret, error) {
		var list corev1.SecretList
		err := c.Clients["rome"].List(context.Background(), &list, client.HasLabels{v1alpha1.LabelTombstone})
		return list.Items, err
	}
	cleanButForTombstone := func(t *testing.T) {
		t.Helper()
		begin := time.Now()
		r := c.TryPelago(t, "rome", "unpeer", "milan", "--force")
		if r.Code != 0 || time.Since(begin) > forceLimit {
			t.Errorf("unpeer --force: exit %d after %s\n%s%s", r.Code, time.Since(begin), r.Out, r.Errs)
		}
		left, err := tombstones()
		if err != nil || len(left) != 1 {
			t.Fatalf("%d tombstones, %v; want 1", len(left), err)
		}
		name := fmt.Sprintf("secrets./%s/%s", left[0].Namespace, left[0].Name)
		c.asBefore(t, "rome", append(append([]string{}, rome...), name))
	}
	t.Cleanup(func() { c.Run(t, "link", "heal", "rome", "milan") })
	t.Run("delivered", func(t *testing.T) {
		c.peer(t, "rome", "milan")
		c.Run(t, "link", "cut", "rome", "milan")
		r := c.TryPelago(t, "rome", "unpeer", "milan", "--timeout", "5s")
		if r.Code == 0 || !strings.Contains(r.Errs, "--force") {
			t.Errorf("unpeer while milan is away: exit %d, %q; want a failure that names --force", r.Code, r.Errs)
		}
		cleanButForTombstone(t)
		c.Run(t, "link", "heal", "rome", "milan")
		eventually(t, patience, "the tombstone has been delivered", func() error {
			left, err := tombstones()
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("tombstone %s is still there", left[0].Name)
			}
			return err
		})
		c.asBefore(t, "rome", rome)
		c.asBefore(t, "milan", milan)
	})
	t.Run("forgotten", func(t *testing.T) {
		c.peer(t, "rome", "milan")
		c.Run(t, "link", "cut", "rome", "milan")
		cleanButForTombstone(t)
		c.Pelago(t, "rome", "unpeer", "milan", "--forget")
		c.asBefore(t, "rome", rome)
		c.Run(t, "link", "heal", "rome", "milan")
		c.Pelago(t, "milan", "unpeer", "rome", "--force")
		c.asBefore(t, "milan", milan)
	})
}

// deletedAtEveryStep deletes the pods of Pelago on both sides as each step of the
// handshake is seen, or as one in stride of them is, and holds that it completes.
func deletedAtEveryStep(t *testing.T, c *continuum, consumer, provider string, stride int) {
	steps := []struct {
		name, cluster string
		list          client.ObjectList
		reached       func(client.Object) bool
	}{
		{"the key is stored", consumer, &corev1.SecretList{}, func(o client.Object) bool { return o.GetName() == v1alpha1.CredentialSecret(provider) }},
		{"the invitation is bound", provider, &v1alpha1.InvitationList{}, func(o client.Object) bool { return o.(*v1alpha1.Invitation).Status.BoundTo != nil }},
		{"the tenant is made", provider, &v1alpha1.TenantList{}, func(client.Object) bool { return true }},
		{"the tenant has its rights", provider, &v1alpha1.TenantList{}, func(o client.Object) bool {
			return strings.HasPrefix(condition(o.(*v1alpha1.Tenant).Status.Conditions, v1alpha1.ConditionRightsReady), "RightsReady=True")
		}},
		{"the identity is made", provider, &v1alpha1.IdentityList{}, func(client.Object) bool { return true }},
		{"the credential is stored", consumer, &corev1.SecretList{}, func(o client.Object) bool {
			return o.GetName() == v1alpha1.CredentialSecret(provider) && len(o.(*corev1.Secret).Data["tls.crt"]) > 0
		}},
		{"the request is made", consumer, &v1alpha1.ResourceRequestList{}, func(client.Object) bool { return true }},
		{"the offer is made", provider, &v1alpha1.ResourceOfferList{}, func(client.Object) bool { return true }},
	}
	home, there := c.objects(t, consumer), c.objects(t, provider)
	for i, step := range steps {
		if i%stride != 0 {
			continue
		}
		t.Run(step.name, func(t *testing.T) {
			line := c.Invite(t, provider)
			t.Cleanup(func() { c.part(t, consumer, provider) })
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			events, err := c.Clients[step.cluster].Watch(ctx, step.list.DeepCopyObject().(client.ObjectList), &client.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer events.Stop()
			struck := make(chan error, 1)
			go func() { struck <- c.strikeWhen(ctx, events, step.reached, consumer, provider) }()
			r := c.Shell(t, consumer, line+" --timeout 3m30s")
			if err := <-struck; err != nil {
				t.Fatalf("the step was never seen: %v", err)
			}
			if r.Code != 0 {
				t.Fatalf("after pods were deleted the handshake ends with %d\n%s%s", r.Code, r.Out, r.Errs)
			}
			t.Logf("peered in %s", r.Took.Round(100*time.Millisecond))
			c.Pelago(t, consumer, "unpeer", provider)
		})
	}
	c.asBeforeButPods(t, consumer, home)
	c.asBeforeButPods(t, provider, there)
}

// strikeWhen deletes every pod of Pelago in rome and milan once an object is as reached says.
func (c *continuum) strikeWhen(ctx context.Context, events watch.Interface, reached func(client.Object) bool, clusters ...string) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-events.ResultChan():
			if !open {
				return fmt.Errorf("the watch ended")
			}
			object, ok := event.Object.(client.Object)
			if !ok || event.Type == watch.Deleted || !reached(object) {
				continue
			}
			for _, cluster := range clusters {
				err := c.Clients[cluster].DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(v1alpha1.SystemNamespace), strikeGrace)
				if err != nil {
					return err
				}
			}
			return nil
		}
	}
}

// asBeforeButPods is asBefore where pods of Pelago have new names.
func (c *continuum) asBeforeButPods(t *testing.T, cluster string, before []string) {
	t.Helper()
	var kept []string
	for _, o := range before {
		if !strings.HasPrefix(o, "pods./"+v1alpha1.SystemNamespace+"/") {
			kept = append(kept, o)
		}
	}
	pods := &corev1.PodList{}
	eventually(t, 2*time.Minute, "Pelago runs in "+cluster, func() error {
		if err := c.Clients[cluster].List(t.Context(), pods, client.InNamespace(v1alpha1.SystemNamespace)); err != nil {
			return err
		}
		for _, pod := range pods.Items {
			ready := false
			for _, each := range pod.Status.Conditions {
				ready = ready || each.Type == corev1.PodReady && each.Status == corev1.ConditionTrue
			}
			if !ready || pod.DeletionTimestamp != nil {
				return fmt.Errorf("pod %s is not ready", pod.Name)
			}
		}
		return nil
	})
	for _, pod := range pods.Items {
		kept = append(kept, "pods./"+pod.Namespace+"/"+pod.Name)
	}
	c.asBefore(t, cluster, kept)
}

// canary holds that no secret shows where it should not: what peering makes and does
// is searched for the token and the key, in both clusters.
func canary(t *testing.T, c *continuum) {
	line := c.Invite(t, "milan")
	token := strings.Trim(strings.Fields(line[strings.Index(line, "--token")+len("--token"):])[0], "'\"=")
	if len(token) != 43 {
		t.Fatalf("the token of the line has %d characters, want 43", len(token))
	}
	t.Cleanup(func() { c.part(t, "rome", "milan") })
	if r := c.Shell(t, "rome", line); r.Code != 0 {
		t.Fatalf("exit %d\n%s%s", r.Code, r.Out, r.Errs)
	}
	secret, err := get[corev1.Secret](c, "rome", v1alpha1.SystemNamespace, v1alpha1.CredentialSecret("milan"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"the token": token}
	for i, body := range strings.Split(string(secret.Data["tls.key"]), "\n") {
		if len(body) > 30 && !strings.HasPrefix(body, "-----") {
			secrets[fmt.Sprintf("line %d of the key", i)] = body
		}
	}
	if len(secrets) < 2 {
		t.Fatal("the credential holds no key")
	}
	for _, cluster := range []string{"rome", "milan"} {
		// Secrets are left out here: in them the key is in base64, and rightly so.
		text := c.everything(t, cluster)
		if !strings.Contains(text, "kind: Peering") || !strings.Contains(text, "pelago-manager") {
			t.Fatalf("what was read of %s holds no peering or no log", cluster)
		}
		for name, value := range secrets {
			if strings.Contains(text, value) {
				t.Errorf("%s holds %s in the clear", cluster, name)
			}
		}
	}
	for _, cluster := range []string{"rome", "milan"} {
		for _, component := range []string{"pelago-manager", v1alpha1.AuthService} {
			for name, value := range secrets {
				if strings.Contains(strings.Join(c.Metrics(t, cluster, component), ""), value) {
					t.Errorf("a metric of %s in %s holds %s", component, cluster, name)
				}
			}
		}
	}
}
