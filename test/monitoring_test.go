package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// prometheusImage is Debian's Prometheus.
const prometheusImage = "pelago.test/prometheus:1"

// prometheusConfig reads as ServiceMonitors of the chart would, every two seconds. The pods are
// listed: Debian's Prometheus finds none by itself.
const prometheusConfig = `global: {scrape_interval: 2s, evaluation_interval: 2s}
rule_files: [/config/rules.yaml]
scrape_configs:
- job_name: pelago
  scheme: https
  tls_config: {insecure_skip_verify: true} # a certificate of each process's own, as the chart's ServiceMonitors say
  authorization: {credentials_file: /var/run/secrets/kubernetes.io/serviceaccount/token}
  static_configs:
`

// neverHappens are the panels with a query for what did not happen in this test, which counters
// tell only from the first time on.
var neverHappens = []string{
	"Pods sent home, per minute", "Refused, per minute", "Errors of controllers, per minute", "What strangers asked, per minute",
}

// monitoring holds that a Prometheus in the cluster may read all that the chart says it should, that
// every query of the dashboard has an answer at the consumer or the provider, that no alert fires
// while all is well, and that a cut link is told of.
func monitoring(t *testing.T, c *continuum) {
	c.Run(t, "image", "build", prometheusImage, "--from-packages", "prometheus")
	c.Run(t, "image", "load", prometheusImage, "rome", "milan")
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=north")
	s.create(t, s.deployment("watched", 2))
	s.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "watched"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "watched"}, Ports: []corev1.ServicePort{{Port: 80}}},
	})
	s.runningAll(t, "watched", 2)
	rome, milan := c.prometheus(t, "rome"), c.prometheus(t, "milan")

	text, err := os.ReadFile("../deploy/chart/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "every query of the dashboard has an answer", func() error {
		var without []string
		asked := 0
		for _, panel := range dashboard.Panels {
			for _, q := range panel.Targets {
				asked++
				there, err := milan.ask(t, q.Expr)
				here, err2 := rome.ask(t, q.Expr)
				if err := errors.Join(err, err2); err != nil {
					return err
				}
				if len(there)+len(here) == 0 && !slices.Contains(neverHappens, panel.Title) {
					without = append(without, panel.Title+": "+q.Expr)
				}
			}
		}
		if len(without) > 0 || asked < 30 {
			return fmt.Errorf("of %d queries these have none: %s", asked, strings.Join(without, "; "))
		}
		return nil
	})
	for _, p := range []prometheus{rome, milan} {
		firing, err := p.ask(t, `ALERTS{alertstate="firing"}`)
		if err != nil || len(firing) > 0 {
			t.Errorf("%s: while all is well these fire: %v, %v", p.cluster, firing, err)
		}
	}

	c.Run(t, "link", "cut", "rome", "milan")
	t.Cleanup(func() { c.Run(t, "link", "heal", "rome", "milan") })
	state := func(want string) func() error {
		return func() error {
			all, err := rome.ask(t, `ALERTS{alertname="PelagoTunnelDead",peering="peering-milan"}`)
			switch {
			case err != nil:
				return err
			case want == "" && len(all) == 0, len(all) == 1 && all[0]["alertstate"] == want:
				return nil
			}
			return fmt.Errorf("rome has %v", all)
		}
	}
	eventually(t, 30*time.Second, "the dead tunnel is noticed", state("pending"))
	eventually(t, patience, "the dead tunnel is told of", state("firing"))
	c.Run(t, "link", "heal", "rome", "milan")
	eventually(t, 30*time.Second, "the alert ends with the cut", state(""))
	c.nodeReady(t, "rome", "milan")
}

// prometheus is one in a cluster.
type prometheus struct {
	*continuum
	cluster, namespace string
}

// prometheus starts one, with the rights that docs/metrics.md says.
func (c *continuum) prometheus(t *testing.T, cluster string) prometheus {
	s := c.shop(t, cluster)
	rules, err := os.ReadFile("../deploy/chart/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	reader := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "default", Namespace: s.name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "pelago-metrics-reader"},
	}
	if err := c.Clients[cluster].Create(t.Context(), reader); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Kubectl(t, cluster, "delete", "clusterrolebinding", reader.Name) })
	s.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "prometheus"}, Data: map[string]string{"prometheus.yml": prometheusConfig + c.measured(t, cluster), "rules.yaml": string(rules)}})
	labels := map[string]string{"app": "prometheus"}
	s.create(t, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 9090, TargetPort: intstr.FromInt32(9090)}}},
	})
	s.create(t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{
						Name: "prometheus", Image: prometheusImage, ImagePullPolicy: corev1.PullNever,
						Command:        []string{"/usr/bin/prometheus", "--config.file=/config/prometheus.yml", "--storage.tsdb.path=/data"},
						VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/config"}, {Name: "data", MountPath: "/data"}},
						ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/-/ready", Port: intstr.FromInt32(9090)}}},
					}},
					Volumes: []corev1.Volume{
						{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "prometheus"}}}},
						{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
					},
				},
			},
		},
	})
	s.runningAll(t, "prometheus", 1)
	p := prometheus{c, cluster, s.name}
	eventually(t, patience, "Prometheus reads the managers, the authentication endpoint and an agent of "+cluster, func() error {
		up, err := p.ask(t, `up == 1`)
		if err != nil {
			return err
		}
		for _, program := range []string{"pelago-manager-", "pelago-auth-", "pelago-agent-"} {
			if !slices.ContainsFunc(up, func(labels map[string]string) bool { return strings.HasPrefix(labels["pod"], program) }) {
				return fmt.Errorf("it reads %v", up)
			}
		}
		return nil
	})
	return p
}

// measured are Pelago's own pods, as targets.
func (c *continuum) measured(t *testing.T, cluster string) (targets string) {
	for namespace, port := range map[string]int{v1alpha1.SystemNamespace: 8443, v1alpha1.NetworkNamespace: 7078} {
		var pods corev1.PodList
		if err := c.Clients[cluster].List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/part-of": "pelago"}); err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			targets += fmt.Sprintf("  - {targets: ['%s:%d'], labels: {pod: %s}}\n", pods.Items[i].Status.PodIP, port, pods.Items[i].Name)
		}
	}
	return targets
}

// ask returns the labels of what a query finds.
func (p prometheus) ask(t *testing.T, query string) (found []map[string]string, err error) {
	t.Helper()
	out := p.Kubectl(t, p.cluster, "get", "--raw", "/api/v1/namespaces/"+p.namespace+"/services/prometheus:9090/proxy/api/v1/query?query="+url.QueryEscape(query))
	var answer struct {
		Status string
		Data   struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("Prometheus of %s answers %.300s: %w", p.cluster, out, err)
	}
	for _, r := range answer.Data.Result {
		found = append(found, r.Metric)
	}
	return found, nil
}
