package cli

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestPeerTwiceAtOnce holds that who runs a line while another run of it is under way goes on with what that one has
// made, and takes nothing from it: the Peering appears after both have seen that there is none.
func TestPeerTwiceAtOnce(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	for _, c := range []struct {
		reason       string
		token        bool // the other run has stored the token too
		answer, seen []metav1.Condition
		code         int
		says         string
		left         int // tokens
	}{
		{"the other run is ahead", true, well(), nil, 0, "Peered with milan", 1},
		{"only its Peering is there", false, well(), nil, 0, "Peered with milan", 1},
		{"it is done", false, nil, well(), 0, "already", 0},
		{"both are refused", true, []metav1.Condition{isNot(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationRefused, "no")}, nil, 1, "refused", 1},
	} {
		t.Run(c.reason, func(t *testing.T) {
			var stored atomic.Bool // by the run that is looked at
			stop := s.manager(func(*v1alpha1.Peering) []metav1.Condition {
				if !stored.Load() {
					return nil
				}
				return c.answer
			})
			defer s.sweep()
			defer stop()
			ahead := false
			connect := func(Access) (*Cluster, error) {
				cluster, err := Connect(s.access)
				if err != nil {
					return nil, err
				}
				cluster.Client = interceptor.NewClient(cluster.Client, interceptor.Funcs{Watch: func(ctx context.Context, w client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
					stored.Store(true)
					return w.Watch(ctx, list, options...)
				}, Create: func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
					_, isPeering := o.(*v1alpha1.Peering)
					if !ahead && isPeering != c.token {
						ahead = true
						i := invitation{Name: "milan", ClusterID: id1, AuthURL: "https://milan.example:30443", CASHA256: hash, Token: marked}
						for _, theirs := range i.manifests(v1alpha1.Consume{}) {
							if _, is := theirs.(*v1alpha1.Peering); !is && !c.token {
								continue
							}
							if err := w.Create(ctx, theirs); err != nil {
								t.Error(err)
							}
						}
						if p := s.peering("milan"); c.seen != nil {
							before := p.DeepCopy()
							conditions(&p.Status.Conditions, p.Generation, c.seen...)
							if err := w.Status().Patch(ctx, p, client.MergeFrom(before)); err != nil {
								t.Error(err)
							}
						}
					}
					return w.Create(ctx, o, options...)
				}})
				return cluster, nil
			}
			got := programWith(t.Context(), func(e *Env) { e.Connect = connect }, peerArgs(id1)...)
			if got.code != c.code || !strings.Contains(got.out+got.err, c.says) || !ahead {
				t.Errorf("%+v", got)
			}
			tokens := s.tokens()
			if p := s.peering("milan"); p == nil || len(tokens) != c.left || c.left > 0 && !slices.Contains(tokens, p.Spec.Consume.TokenSecret) {
				t.Errorf("left are Peering %+v and tokens %v, want %d", p, tokens, c.left)
			}
		})
	}
}
