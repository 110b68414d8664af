package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// as is the way to the stage of somebody who may read these resources and no others.
func (s *stage) as(user string, resources ...string) Access {
	s.t.Helper()
	config, err := clientcmd.LoadFromFile(s.access.Kubeconfig)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, info := range config.AuthInfos {
		info.Impersonate = user
	}
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		s.t.Fatal(err)
	}
	// Every group, as the names of resources are enough to tell them apart here.
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: resources, Verbs: []string{"get", "list", "watch"}}}
	s.create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})
	return Access{Kubeconfig: file}
}

// TestWithoutSecrets holds that who may read all but Secrets is told how it is, and what he does not see; and that what
// concerns the network alone asks for nothing else.
func TestWithoutSecrets(t *testing.T) {
	s := capturing(t)
	network := []string{"pods", "nodes", "namespaces", "events", "daemonsets", "leases", "endpointslices", "networkpolicies", "peerings", "tenants",
		"namespaceoffloadings", "namespacemaps", "networkconfigs", "networkpaths", "networkrules"}
	all := append([]string{"deployments", "services", "configmaps", "invitations", "resourcerequests", "resourceoffers", "ipmappings", "shadowobjects"}, network...)
	reader, narrow := s.as("reads-all-but-secrets", all...), s.as("reads-what-the-network-is", network...)
	agent := func(context.Context, string, string, []string, io.Reader, io.Writer) error {
		return io.ErrUnexpectedEOF
	}
	for _, c := range []struct {
		access Access
		args   []string
		says   string
	}{
		{reader, []string{"status"}, "… tombstones: who may not list Secrets in namespace pelago-system does not see which clusters have not been told"},
		{reader, []string{"status", "milan", "-o", "json"}, `"tombstones": []`},
		{reader, []string{"explain", "peering", "milan"}, "– there is an invitation to show not known: who may not read Secret pelago-system/not-there does not see"},
		{narrow, []string{"explain", "connection", "web", "db", "-n", "shop"}, "From pod web to pod db"},
		{narrow, []string{"capture", "db", "-n", "shop"}, "Reading packets of db between here and milan at node rome-1."},
	} {
		var got result
		eventually(t, "the API server knows of the rights", func() bool {
			got = programWith(t.Context(), func(e *Env) {
				e.Connect = func(Access) (*Cluster, error) {
					cluster, err := Connect(c.access)
					if err == nil {
						cluster.Stream = agent
					}
					return cluster, err
				}
			}, c.args...)
			return c.args[0] == "capture" || got.code == 0 || strings.Contains(got.err, "secrets")
		})
		if said := strings.Join(strings.Fields(got.out+got.err), " "); !strings.Contains(said, c.says) || strings.Contains(said, "forbidden") {
			t.Errorf("%v says %+v", c.args, got)
		}
	}
	if got := s.run("status"); strings.Contains(got.out, "tombstones") {
		t.Errorf("who may read Secrets is told %+v", got)
	}
}
