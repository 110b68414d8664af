package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestInstallEndsEarly holds that an installation that ended before all was applied goes on with what
// it was given, when it is said to be run again: agents that were left out stay out.
func TestInstallEndsEarly(t *testing.T) {
	s := newStage(t, 1)
	stop := s.kubernetes()
	defer func() {
		if got := s.run("uninstall"); got.code != 0 {
			t.Errorf("uninstalling: %+v", got)
		}
		stop()
	}()
	refused := errors.New("nothing of this kind is taken")
	early := programWith(t.Context(), func(e *Env) {
		e.Connect = func(Access) (*Cluster, error) {
			c, err := Connect(s.access)
			if err == nil {
				c.Client = interceptor.NewClient(c.Client, interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
					if u, is := o.(interface{ GetKind() string }); is && u.GetKind() == "ServiceAccount" {
						return refused
					}
					return c.Apply(ctx, o, options...)
				}})
			}
			return c, err
		}
	}, "install", "--cluster-name", "milan", "--api-server-url", "https://milan.example:6443", "--set", "network.enabled=false")
	if early.code != 1 || !strings.Contains(early.err, refused.Error()) {
		t.Fatalf("an installation that is refused: %+v", early)
	}
	if err := s.c.Get(t.Context(), inSystem(v1alpha1.ConfigName), &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the settings are there already: %v; let the test refuse what is applied before them", err)
	}
	if got := s.run("install"); got.code != 0 || !strings.Contains(got.out, "Pelago runs in milan") {
		t.Errorf("installing again: %+v", got)
	}
	var agents appsv1.DaemonSet
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName}, &agents); !apierrors.IsNotFound(err) {
		t.Errorf("agents come to a cluster where they were left out: %v", err)
	}
}
