package network

import (
	"encoding/base64"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
)

// inFront is the Service in front of an opening and the node behind that, nil and "" if there is none.
func (s *side) inFront(opening string) (*corev1.Service, string) {
	s.world.t.Helper()
	at := client.ObjectKey{Namespace: s.namespace, Name: frontName(opening)}
	service, slice := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	if err := s.world.raw.Get(ctx, at, service); client.IgnoreNotFound(err) != nil {
		s.world.t.Fatal(err)
	} else if err != nil {
		service = nil
	}
	if err := s.world.raw.Get(ctx, at, slice); err != nil {
		if client.IgnoreNotFound(err) != nil {
			s.world.t.Fatal(err)
		}
		return service, ""
	}
	return service, *slice.Endpoints[0].NodeName
}

// openingReady is the condition Ready of an opening as status/reason: message.
func (s *side) openingReady(opening string) string {
	s.world.t.Helper()
	o := s.opened(opening)
	if o == nil {
		return "there is none"
	}
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return ""
	}
	if c.ObservedGeneration != o.Generation {
		s.world.t.Errorf("Ready of %s speaks of generation %d of %d", opening, c.ObservedGeneration, o.Generation)
	}
	return string(c.Status) + "/" + c.Reason + ": " + c.Message
}

// TestInBandFronted has a tunnel that there is before a peering be called through a Service on both
// sides, from the invitation to its end, and tells the owner if that cannot be.
func TestInBandFronted(t *testing.T) {
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer} {
		t.Run(string(kind), func(t *testing.T) { testInBandFronted(t, kind) })
	}
}

func testInBandFronted(t *testing.T, kind corev1.ServiceType) {
	token := base64.RawURLEncoding.EncodeToString(append(make([]byte, 31), 9))
	_, public, err := v1alpha1.InBandKey(token)
	if err != nil {
		t.Fatal(err)
	}
	secretName := "fronted-" + strings.ToLower(string(kind))
	w := peeredBy(t, &v1alpha1.Consume{CASHA256: v1alpha1.TokenHash("x"), TokenSecret: secretName, InBand: &v1alpha1.InBand{
		PublicKey: keyOf(77).Public().String(), Endpoints: []string{"198.18.1.1:7100"}}})
	w.system()
	w.create(&corev1.Secret{ObjectMeta: at(v1alpha1.SystemNamespace, secretName), StringData: map[string]string{"token": token}})
	peering := &v1alpha1.Peering{ObjectMeta: named(w.rome.name)}
	w.changeStatus(peering, `{"status":{"remote":null}}`) // nothing has been heard of it
	w.away = true
	for _, s := range []*side{w.rome, w.milan} {
		s.config.Network.Service, s.config.Network.Pods, s.config.Network.External = kind, []string{"10.42.0.0/16"}, []string{"10.255.255.0/24"}
		s.restart()
	}
	invitation := w.create(&v1alpha1.Invitation{ObjectMeta: metav1.ObjectMeta{Name: w.milan.peer + "-1", Labels: map[string]string{v1alpha1.LabelPeering: w.milan.peer}}, Spec: v1alpha1.InvitationSpec{
		TokenSHA256: v1alpha1.TokenHash(token), Expires: metav1.NewTime(w.clock.Now().Add(time.Hour)), InBand: &v1alpha1.InvitationInBand{PublicKey: public}}}).(*v1alpha1.Invitation)
	names := map[*side]string{w.milan: v1alpha1.InvitationPrefix + invitation.Name, w.rome: v1alpha1.IntroductionPrefix + w.rome.peer}

	// What somebody else has made under the name stays, and the owner is told.
	foreign := map[*side]client.Object{}
	for s, name := range names {
		foreign[s] = w.create(&corev1.Service{ObjectMeta: at(s.namespace, frontName(name)), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	}
	w.agents()
	w.settle()
	for s, name := range names {
		if got := s.openingReady(name); !strings.HasPrefix(got, "False/NameTaken: ") || !strings.Contains(got, frontName(name)) {
			t.Errorf("of a name that is taken the owner of %s is told %q", name, got)
		}
		if service, behind := s.inFront(name); service == nil || service.ResourceVersion != foreign[s].GetResourceVersion() || behind != "" || len(s.opened(name).Spec.Endpoints) > 0 {
			t.Errorf("what is somebody else's is %+v, before %q, and called is %v", service, behind, s.opened(name).Spec.Endpoints)
		}
		if err := w.raw.Delete(ctx, foreign[s]); err != nil {
			t.Fatal(err)
		}
	}

	w.agents()
	w.settle()
	for s, name := range names {
		o := s.opened(name)
		service, behind := s.inFront(name)
		if service == nil || service.Spec.Type != kind || service.Spec.Selector != nil || service.Labels[v1alpha1.LabelManagedBy] != component || service.Spec.Ports[0].Port != o.Spec.Port {
			t.Fatalf("the Service of %s is %+v", name, service)
		}
		if want := plan.Gateway(name, s.nodes, nil); behind != want {
			t.Errorf("that of %s leads to %q, want %q", name, behind, want)
		}
		if kind == corev1.ServiceTypeLoadBalancer {
			if got := s.openingReady(name); !strings.HasPrefix(got, "False/Waiting: ") || !strings.Contains(got, frontName(name)) || len(o.Spec.Endpoints) > 0 {
				t.Errorf("of %s, called at %v, is said %q", name, o.Spec.Endpoints, got)
			}
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
			w.status(service)
		}
	}
	w.agents()
	w.settle()
	for s, name := range names {
		service, _ := s.inFront(name)
		want := []string{hostPort("203.0.113.9", service.Spec.Ports[0].Port)}
		if kind == corev1.ServiceTypeNodePort {
			want = nil
			for _, n := range plan.Order(name, s.nodes) {
				want = append(want, hostPort(w.node(n).Status.Addresses[0].Address, service.Spec.Ports[0].NodePort))
			}
		}
		if got := s.opened(name).Spec.Endpoints; !slices.Equal(got, want) {
			t.Errorf("%s is called at %v, want %v", name, got, want)
		}
		if got := s.openingReady(name); got != "True/Ready: " {
			t.Errorf("of %s, which can be called, is said %q", name, got)
		}
	}
	writes := w.writes
	w.rome.restart()
	w.milan.restart()
	w.settle()
	if w.writes != writes {
		t.Errorf("after a restart there are the writes\n%s", w.since(writes))
	}

	// They go with the invitation and with the Peering.
	if err := w.raw.Delete(ctx, invitation); err != nil {
		t.Fatal(err)
	}
	if err := w.raw.Patch(ctx, peering, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	if err := w.raw.Delete(ctx, peering); err != nil {
		t.Fatal(err)
	}
	w.settle()
	for s, name := range names {
		if service, behind := s.inFront(name); service != nil || behind != "" || s.opened(name) != nil {
			t.Errorf("of %s is left %v, that leads to %q", name, service, behind)
		}
	}
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
