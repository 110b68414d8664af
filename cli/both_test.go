package cli

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func (s *stage) invitations() int {
	s.t.Helper()
	var list v1alpha1.InvitationList
	if err := s.c.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	for i := range list.Items {
		s.t.Cleanup(func() { s.drop(&list.Items[i]) })
	}
	return len(list.Items)
}

// TestPeerBoth goes through one command for both sides, on two servers.
func TestPeerBoth(t *testing.T) {
	rome, milan := newStage(t, 0), newStage(t, 1)
	rome.install("rome", id2)
	milan.install("milan", id1)
	work := func(*v1alpha1.Peering) []metav1.Condition { return well() }
	refuse := func(*v1alpha1.Peering) []metav1.Condition {
		return []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationRefused, "no")}
	}
	cases := []struct {
		reason          string
		args            []string
		atRome, atMilan func(*v1alpha1.Peering) []metav1.Condition
		code            int
		out, err        string
		here, there     bool
	}{
		{"one direction", nil, work, work, 0, "Peered with milan.\n", "", true, false},
		{"both", []string{"--bidirectional"}, work, work, 0, "Peered with milan.\nmilan uses this cluster as rome.\n", "", true, true},
		{"under another name", []string{"lombardy"}, work, work, 0, "Peered with lombardy.\n", "", true, false},
		{"refused", nil, refuse, work, 1, "", "the peering was refused", false, false},
		{"the second is refused, so the first is rolled back", []string{"--bidirectional"}, work, refuse, 1, "", "The second direction failed; what was made in the cluster at " + milan.server() + " is rolled back.\nThe second direction failed; what was made in the cluster at " + rome.server() + " is rolled back.\n", false, false},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			stop, stopThere := rome.manager(c.atRome), milan.manager(c.atMilan)
			got := rome.run(append(append([]string{"peer"}, c.args...), "--remote-kubeconfig", milan.access.Kubeconfig)...)
			if got.code != c.code || got.out != c.out || !strings.Contains(got.err, c.err) {
				t.Errorf("%+v, want %d, %q, %q", got, c.code, c.out, c.err)
			}
			name := "milan"
			if len(c.args) > 0 && !strings.HasPrefix(c.args[0], "--") {
				name = c.args[0]
			}
			if (rome.peering(name) != nil) != c.here || (milan.peering("rome") != nil) != c.there {
				t.Errorf("peered here %t, there %t; want %t, %t", rome.peering(name) != nil, milan.peering("rome") != nil, c.here, c.there)
			}
			if c.code != 0 && (rome.invitations() > 0 || milan.invitations() > 1 || len(rome.tokens())+len(milan.tokens()) > 0) {
				t.Errorf("left: %d and %d invitations, tokens %v and %v", rome.invitations(), milan.invitations(), rome.tokens(), milan.tokens())
			}
			stop()
			stopThere()
			rome.sweep()
			milan.sweep()
			rome.forget()
			milan.forget()
		})
	}
}

// TestBothUnfinished holds that the invitation stays while Pelago goes on with it, and goes when the end of
// the wait undoes what it made.
func TestBothUnfinished(t *testing.T) {
	rome, milan := newStage(t, 0), newStage(t, 1)
	rome.install("rome", id2)
	milan.install("milan", id1)
	defer rome.sweep()
	defer milan.sweep()
	work := func(*v1alpha1.Peering) []metav1.Condition { return well() }
	wait := func(p *v1alpha1.Peering) []metav1.Condition {
		if !p.DeletionTimestamp.IsZero() {
			return well()
		}
		return []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonAuthUnreachable, "nobody answers")}
	}
	stops := []func(){rome.manager(wait), milan.manager(work)}
	got := rome.run("peer", "--remote-kubeconfig", milan.access.Kubeconfig, "--timeout", "3s")
	if i := milan.onlyInvitation(); got.code != 1 || i == nil || !strings.Contains(got.err, "Pelago goes on trying") ||
		!strings.Contains(got.err, "the invitation is good until "+i.Spec.Expires.UTC().Format("2006-01-02 15:04 MST")) {
		t.Errorf("not done, and left is %+v: %+v", i, got)
	}
	if len(rome.tokens()) != 1 {
		t.Errorf("tokens %v, want the invitation's", rome.tokens())
	}
	for _, stop := range stops {
		stop()
	}
	milan.forget()
	rome.sweep()
	defer rome.manager(work)()
	defer milan.manager(wait)()
	got = rome.run("peer", "--remote-kubeconfig", milan.access.Kubeconfig, "--bidirectional", "--timeout", "5s")
	if got.code != 1 || !strings.Contains(got.err, "rolled back") || strings.Contains(got.err, "goes on trying") || rome.onlyInvitation() != nil || rome.peering("milan") != nil || milan.peering("rome") != nil {
		t.Errorf("undone, and left is %+v: %+v", rome.onlyInvitation(), got)
	}
	milan.forget()
}

// TestBothHalfRolledBack holds that the first direction goes also when the second cannot be removed, of which it is
// said where it stays.
func TestBothHalfRolledBack(t *testing.T) {
	rome, milan := newStage(t, 0), newStage(t, 1)
	rome.install("rome", id2)
	milan.install("milan", id1)
	defer milan.forget()
	defer milan.sweep()
	defer rome.manager(func(*v1alpha1.Peering) []metav1.Condition { return well() })()
	defer milan.manager(func(*v1alpha1.Peering) []metav1.Condition {
		return []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationRefused, "no")}
	})()
	connect := func(a Access) (*Cluster, error) {
		if !a.remote {
			return Connect(rome.access)
		}
		c, err := Connect(a)
		if err == nil {
			c.Client = interceptor.NewClient(c.Client, interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
				return errors.New("nothing can be deleted there")
			}})
		}
		return c, err
	}
	got := programWith(t.Context(), func(e *Env) { e.Connect = connect }, "peer", "--remote-kubeconfig", milan.access.Kubeconfig, "--bidirectional")
	if got.code != 1 || rome.peering("milan") != nil || len(rome.tokens()) > 0 || milan.peering("rome") == nil {
		t.Errorf("left are here %+v, there %+v: %+v", rome.peering("milan"), milan.peering("rome"), got)
	}
	if strings.Contains(got.err, "cluster at "+milan.server()+" is rolled back") || !strings.Contains(got.err, "cluster at "+rome.server()+" is rolled back") ||
		!strings.Contains(got.err, "rolling back in the cluster at "+milan.server()+" failed too: deleting Secret ") || !strings.Contains(got.err, ", then pelago unpeer rome") {
		t.Errorf("it says %+v", got)
	}
}

// server is the address of this stage.
func (s *stage) server() string {
	s.t.Helper()
	c, err := Connect(s.access)
	if err != nil {
		s.t.Fatal(err)
	}
	return c.Server
}

// forget deletes all invitations.
func (s *stage) forget() {
	s.t.Helper()
	if err := s.c.DeleteAllOf(s.t.Context(), &v1alpha1.Invitation{}); err != nil {
		s.t.Fatal(err)
	}
}

// TestBothTheSame holds that a kubeconfig of the same cluster is found out before anything is made.
func TestBothTheSame(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	if got := s.run("peer", "--remote-kubeconfig", s.access.Kubeconfig); got.code != 1 || !strings.Contains(got.err, "--remote-kubeconfig leads to this cluster itself") || s.onlyInvitation() != nil {
		t.Errorf("a cluster and itself: %+v", got)
	}
	if got := s.run("peer", "--remote-kubeconfig", "/nowhere"); got.code != 1 || !strings.Contains(got.err, "choose with --remote-kubeconfig and --remote-context") {
		t.Errorf("no such file: %+v", got)
	}
	if got := s.run("explain", "pod", "web-0", "-n", "no-such-space"); got.code != 1 || !strings.Contains(got.err, "there is no namespace no-such-space") {
		t.Errorf("no such namespace: %+v", got)
	}
}

// TestBothInOneFile holds that --remote-context names a context of what --kubeconfig gives, if nothing
// gives another file.
func TestBothInOneFile(t *testing.T) {
	for _, c := range []struct {
		args []string
		want Access
	}{
		{[]string{"--remote-context", "milan"}, Access{Kubeconfig: "both", Context: "milan", remote: true}},
		{[]string{"--remote-context", "milan", "--remote-kubeconfig", "there"}, Access{Kubeconfig: "there", Context: "milan", remote: true}},
		{[]string{"--remote-kubeconfig", "there"}, Access{Kubeconfig: "there", remote: true}},
	} {
		var opened []Access
		connect := func(a Access) (*Cluster, error) {
			if opened = append(opened, a); a.remote {
				return nil, errors.New("that is enough")
			}
			return &Cluster{}, nil
		}
		programWith(t.Context(), func(e *Env) { e.Connect = connect }, append([]string{"peer", "--kubeconfig", "both", "--context", "rome"}, c.args...)...)
		if want := []Access{{Kubeconfig: "both", Context: "rome"}, c.want}; !slices.Equal(opened, want) {
			t.Errorf("%v opens %+v, want %+v", c.args, opened, want)
		}
	}
}
