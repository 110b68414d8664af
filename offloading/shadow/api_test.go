package shadow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var homeAPI = netip.MustParseAddrPort("10.81.255.2:443")

func TestReachHome(t *testing.T) {
	value := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	alias := func(ip string, names ...string) corev1.HostAlias {
		return corev1.HostAlias{IP: ip, Hostnames: names}
	}
	all := []corev1.EnvVar{value("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc"), value("KUBERNETES_SERVICE_PORT", "443"), value("KUBERNETES_SERVICE_PORT_HTTPS", "443")}
	names := alias("10.81.255.2", "kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local")
	own := value("API", "https://$(KUBERNETES_SERVICE_HOST)")
	for _, c := range []struct {
		reason      string
		home        string
		at          netip.AddrPort
		env         []corev1.EnvVar
		aliases     []corev1.HostAlias
		wantEnv     []corev1.EnvVar
		wantAliases []corev1.HostAlias
	}{
		{"what it has at home", "shop", homeAPI, nil, nil, all, []corev1.HostAlias{names}},
		{"before its own, that may refer to it", "shop", homeAPI, []corev1.EnvVar{own}, []corev1.HostAlias{alias("192.0.2.1", "db")}, append(slices.Clone(all), own), []corev1.HostAlias{alias("192.0.2.1", "db"), names}},
		{"nobody knows where home is", "shop", netip.AddrPort{}, []corev1.EnvVar{own}, nil, []corev1.EnvVar{own}, nil},
		{"what the pod says itself stays", "shop", homeAPI, []corev1.EnvVar{value(all[1].Name, "6443"), value(all[0].Name, "")}, []corev1.HostAlias{alias("192.0.2.1", "kubernetes.default", "x")},
			[]corev1.EnvVar{all[2], value(all[1].Name, "6443"), value(all[0].Name, "")}, []corev1.HostAlias{alias("192.0.2.1", "kubernetes.default", "x"), alias("10.81.255.2", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")}},
		{"the pod says all of it", "shop", homeAPI, all, []corev1.HostAlias{names}, all, []corev1.HostAlias{names}},
		{"in the namespace of the API server", "default", homeAPI, nil, nil, all, []corev1.HostAlias{alias("10.81.255.2", "kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local", "kubernetes")}},
		{"another port", "shop", netip.MustParseAddrPort("[fd77::2]:6443"), nil, nil,
			[]corev1.EnvVar{all[0], value(all[1].Name, "6443"), value(all[2].Name, "6443")}, []corev1.HostAlias{alias("fd77::2", names.Hostnames...)}},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{HostAliases: slices.Clone(c.aliases),
			InitContainers: []corev1.Container{{Name: "a", Env: slices.Clone(c.env)}}, Containers: []corev1.Container{{Name: "b", Env: slices.Clone(c.env)}, {Name: "c", Env: slices.Clone(c.env)}}}}
		ReachHome(pod, c.home, v1alpha1.DefaultDomain, c.at)
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			if d := cmp.Diff(c.wantEnv, container.Env); d != "" {
				t.Errorf("%s: %s (-want +got):\n%s", c.reason, container.Name, d)
			}
		}
		if d := cmp.Diff(c.wantAliases, pod.Spec.HostAliases); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestReachHomeIsNoChange holds that a pod that reaches home is as wanted, whatever aliases it
// has itself, and that another change does not bring them up, but one of its own aliases does.
func TestReachHomeIsNoChange(t *testing.T) {
	c := kubetest.Server(t).Client(t)
	ground := Ground{Namespace: kubetest.Server(t).Namespace(t), Tenant: "rome"}
	db := corev1.HostAlias{IP: "192.0.2.1", Hostnames: []string{"db"}}
	api := corev1.HostAlias{IP: "192.0.2.2", Hostnames: []string{"kubernetes.default"}}
	for i, aliases := range [][]corev1.HostAlias{nil, {db}, {db, api}} {
		for _, at := range []netip.AddrPort{{}, homeAPI} {
			home := withTokens()
			home.Name = fmt.Sprintf("web-%d-%v", i, at.IsValid())
			home.Spec.HostAliases = aliases
			makeIt := func() *corev1.Pod {
				t.Helper()
				s, _, err := Forge(home, allowing())
				if err != nil {
					t.Fatal(err)
				}
				pod, _, err := Make(s, ground)
				if err != nil {
					t.Fatal(err)
				}
				return pod
			}
			created := makeIt()
			ReachHome(created, "shop", v1alpha1.DefaultDomain, at)
			now := create(t, c, created)
			none(t, now, makeIt())
			home.Spec.Hostname = "other"
			if got := Compare(now, makeIt()).Impossible; len(got) != 1 || !strings.HasPrefix(got[0], "spec.hostname:") {
				t.Errorf("%v, %v: impossible is %v", aliases, at, got)
			}
			home.Spec.HostAliases = append(slices.Clone(aliases), db)
			if got := Compare(now, makeIt()).Impossible; !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "spec.hostAliases") }) {
				t.Errorf("%v, %v, with another alias: impossible is %v", aliases, at, got)
			}
		}
	}
}
