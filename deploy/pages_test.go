package deploy

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// firewall returns the rows of the table that says what nodes and firewalls need.
func firewall(t *testing.T) (rows []string) {
	t.Helper()
	page, err := os.ReadFile("../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(page), "\n| from | to | port | for |\n")
	part, _, _ = strings.Cut(part, "\n\n")
	if !found {
		t.Fatal("docs/network.md has no table of ports")
	}
	return strings.Split(part, "\n")
}

// TestPorts holds that every port that the NetworkPolicy opens stands in the table of
// docs/network.md, as one of Pelago's own pods.
func TestPorts(t *testing.T) {
	named, opened := map[string][]string{}, map[string]string{} // by name: numbers; by number: the rule
	var rules []any
	for _, o := range render(t, everything(), Release{}) {
		if o.GetKind() == "DaemonSet" {
			continue // agents are on the networks of nodes, which no NetworkPolicy is about
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			ports, _, _ := unstructured.NestedSlice(c.(map[string]any), "ports")
			for _, p := range ports {
				port := p.(map[string]any)
				named[fmt.Sprint(port["name"])] = append(named[fmt.Sprint(port["name"])], fmt.Sprint(port["containerPort"]))
			}
		}
		if o.GetKind() == "NetworkPolicy" {
			ingress, _, _ := unstructured.NestedSlice(o.Object, "spec", "ingress")
			rules = append(rules, ingress...)
		}
	}
	for _, rule := range rules {
		ports, _, _ := unstructured.NestedSlice(rule.(map[string]any), "ports")
		for _, p := range ports {
			port := p.(map[string]any)
			name := fmt.Sprint(port["port"])
			if port["endPort"] != nil {
				opened[fmt.Sprintf("%s-%v", name, port["endPort"])] = name
			} else if _, ok := port["port"].(string); !ok {
				opened[name] = name
			}
			for _, number := range named[name] {
				opened[number] = name
			}
		}
	}
	if len(opened) < 3 {
		t.Fatalf("the NetworkPolicy opens %v only", opened)
	}
	for number, name := range opened {
		found := false
		for _, row := range firewall(t) {
			cells := strings.Split(row, "|")
			found = found || len(cells) > 3 && strings.Contains(cells[2], "pods") && strings.Contains(cells[3], "TCP "+number)
		}
		if !found {
			t.Errorf("docs/network.md has no row of TCP %s (%s) of pods", number, name)
		}
	}
}

// TestPullSecrets holds that the comment on image.pullSecrets names every namespace with pods
// that use them.
func TestPullSecrets(t *testing.T) {
	text, err := chart.ReadFile("chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), "\n  pullSecrets:")
	comment := before[strings.LastIndex(before, "\n  pullPolicy:"):]
	namespaces := map[string]bool{}
	for _, o := range render(t, everything(), Release{}) {
		if secrets, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "imagePullSecrets"); len(secrets) > 0 {
			namespaces[o.GetNamespace()] = true
		}
	}
	if len(namespaces) != 2 {
		t.Fatalf("they are used in %v", namespaces)
	}
	for namespace := range namespaces {
		if !strings.Contains(comment, namespace) {
			t.Errorf("the comment on image.pullSecrets does not name %s", namespace)
		}
	}
}
