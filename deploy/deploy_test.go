package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write golden files again")

// minimal are the fewest values there can be.
func minimal() map[string]any {
	return map[string]any{"config": map[string]any{"cluster": map[string]any{"name": "milan"}}}
}

// everything are values that turn on what is off, and set what is empty.
func everything() map[string]any {
	program := func() map[string]any {
		return map[string]any{
			"replicas": 2, "logLevel": "debug", "priorityClassName": "system-cluster-critical",
			"nodeSelector": map[string]any{"kubernetes.io/os": "linux"},
			"tolerations":  []any{map[string]any{"operator": "Exists"}},
			"affinity":     map[string]any{"nodeAffinity": map[string]any{}},
		}
	}
	auth := program()
	auth["service"] = map[string]any{
		"type": "NodePort", "port": 443, "nodePort": 30443, "loadBalancerIP": "192.0.2.1", "loadBalancerClass": "example.com/lb",
		"externalTrafficPolicy": "Local", "ipFamilyPolicy": "PreferDualStack", "annotations": map[string]any{"example.com/pool": "public"},
	}
	return map[string]any{
		"image": map[string]any{"ref": "example.com/pelago@sha256:0000", "pullPolicy": "Always", "pullSecrets": []any{"registry"}},
		"config": map[string]any{
			"cluster": map[string]any{"name": "milan", "labels": map[string]any{"topology.kubernetes.io/region": "eu-south"}},
			"offer":   map[string]any{"reserve": "10%", "rules": []any{map[string]any{"deny": []any{"*"}}}},
		},
		"globalLabels":      map[string]any{"team": "platform"},
		"globalAnnotations": map[string]any{"example.com/owner": "a: \"b\""},
		"manager":           program(), "auth": auth,
		"agent": map[string]any{
			"logLevel": "debug", "priorityClassName": "system-cluster-critical", "maxUnavailable": 3,
			"nodeSelector": map[string]any{"example.com/gateway": "true"}, "tolerations": []any{map[string]any{"key": "example.com/x"}},
		},
		"tenants":        map[string]any{"privileged": []any{"rome", "oslo"}},
		"resourceReader": map[string]any{"address": "quota.example.svc:8443", "secret": "resource-reader"},
		"metrics":        map[string]any{"serviceMonitor": true, "rules": true, "dashboard": true},
		"networkPolicy":  map[string]any{"enabled": true},
	}
}

func render(t *testing.T, values map[string]any, release Release) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Render(values, release)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func asText(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	var out strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return out.String()
}

// What is generated has its own check, and so has what is for Prometheus and Grafana; here
// these count by name only.
func TestRenderGolden(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": minimal(), "everything": everything()} {
		t.Run(name, func(t *testing.T) {
			var generated []string
			byHand := slices.DeleteFunc(render(t, values, Release{}), func(o *unstructured.Unstructured) bool {
				is := o.GetKind() == "CustomResourceDefinition" || o.GetKind() == "ClusterRole" || o.GetKind() == "Role" ||
					o.GetKind() == "PrometheusRule" || o.GetName() == "pelago-dashboard"
				if is {
					generated = append(generated, "# "+o.GetKind()+" "+o.GetName()+"\n")
				}
				return is
			})
			got := strings.Join(generated, "") + asText(t, byHand)
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (go test ./deploy -update writes it again):\n%s", golden, diff)
			}
		})
	}
}

// Every object carries what the owner wants on all of them, and our own mark.
func TestGlobalLabels(t *testing.T) {
	for _, o := range render(t, everything(), Release{}) {
		if o.GetLabels()["team"] != "platform" || o.GetLabels()["pelago.dev/managed-by"] != "install" || o.GetAnnotations()["example.com/owner"] == "" {
			t.Errorf("%s %s has labels %v and annotations %v", o.GetKind(), o.GetName(), o.GetLabels(), o.GetAnnotations())
		}
		template, found, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		if found && template["team"] != "platform" {
			t.Errorf("pods of %s have labels %v", o.GetName(), template)
		}
	}
}

// Applying the chart again must not empty what is filled while Pelago runs.
func TestFilledObjectsHaveNoData(t *testing.T) {
	filled := 0
	for _, o := range render(t, minimal(), Release{}) {
		if !slices.Contains([]string{"pelago-cluster-id", "pelago-auth-tls", "pelago-manager-tls", "pelago-admission"}, o.GetName()) {
			continue
		}
		filled++
		if rules, _, _ := unstructured.NestedSlice(o.Object, "rules"); len(rules) > 0 || len(o.GetAnnotations()) > 0 {
			t.Errorf("%s %s has rules %v and annotations %v", o.GetKind(), o.GetName(), rules, o.GetAnnotations())
		}
		for _, field := range []string{"data", "stringData", "binaryData", "immutable"} {
			if _, found := o.Object[field]; found {
				t.Errorf("%s %s has the field %s", o.GetKind(), o.GetName(), field)
			}
		}
	}
	if filled != 4 {
		t.Errorf("found %d of the 4 objects", filled)
	}
}

// ShadowObjects hold the content of Secrets: nothing is added to the roles that clusters
// give to people.
func TestRolesOfPeopleGetNothing(t *testing.T) {
	for _, o := range render(t, everything(), Release{}) {
		for label := range o.GetLabels() {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				t.Errorf("%s %s has the label %s", o.GetKind(), o.GetName(), label)
			}
		}
	}
}

func TestRenderOrder(t *testing.T) {
	objects := render(t, minimal(), Release{})
	last := -1
	for _, o := range objects {
		if rank(o.GetKind()) < last {
			t.Errorf("%s %s comes too late", o.GetKind(), o.GetName())
		}
		last = rank(o.GetKind())
		if rank(o.GetKind()) == len(order) {
			t.Errorf("%s has no place in the order", o.GetKind())
		}
	}
	if objects[0].GetKind() != "Namespace" || objects[1].GetKind() != "CustomResourceDefinition" || objects[len(objects)-1].GetKind() != "MutatingWebhookConfiguration" {
		t.Errorf("begins with %s, ends with %s", objects[0].GetKind(), objects[len(objects)-1].GetKind())
	}
}

func TestRenderRefuses(t *testing.T) {
	cases := []struct {
		reason  string
		values  map[string]any
		release Release
		want    []string
	}{
		{"a cluster without a name cannot be peered with", nil, Release{}, []string{"config.cluster.name: the name other clusters know"}},
		{"other programs look for pelago-system", minimal(), Release{Namespace: "default"}, []string{"add --namespace pelago-system"}},
		{"a key nobody reads is a typing mistake; all are told at once", map[string]any{
			"imgae": 1, "auth": map[string]any{"service": map[string]any{"typ": "x"}, "replicas": "two"},
		}, Release{}, []string{"auth.replicas: holds two and must hold a whole number", "auth.service.typ: there is no such value; there is annotations,", "imgae: there is no such value; there is agent, auth,"}},
		{"choices are named", map[string]any{"auth": map[string]any{"service": map[string]any{"type": "Ingress"}}}, Release{},
			[]string{`auth.service.type: "Ingress" is unknown; use LoadBalancer, NodePort, ClusterIP`}},
		{"types are checked", map[string]any{"crds": true, "metrics": map[string]any{"service": "yes"}}, Release{},
			[]string{"crds: holds true and must hold a map", "metrics.service: holds yes and must hold true or false"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			_, err := Render(c.values, c.release)
			if err == nil {
				t.Fatal("was rendered")
			}
			lines := strings.Split(err.Error(), "\n")
			for i, want := range c.want {
				if i >= len(lines) || !strings.Contains(lines[i], want) {
					t.Errorf("line %d of %q, want %q", i, err, want)
				}
			}
			if strings.Contains(err.Error(), "template:") {
				t.Errorf("%q shows the insides of the chart", err)
			}
		})
	}
}

// The schema and values.yaml name the same values, and the schema uses nothing that
// CheckValues does not understand.
func TestSchemaMatchesValues(t *testing.T) {
	values, err := Values()
	if err != nil {
		t.Fatal(err)
	}
	s, err := readSchema()
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckValues(values); err != nil {
		t.Errorf("values.yaml breaks the schema: %s", err)
	}
	delete(s.Properties, "global") // Helm's own
	var compare func(path string, s schema, value any)
	compare = func(path string, s schema, value any) {
		for name, property := range s.Properties {
			held, found := value.(map[string]any)[name]
			if !found {
				t.Errorf("values.yaml has no %s%s", path, name)
				continue
			}
			compare(path+name+".", property, held)
		}
	}
	compare("", s, values)

	text, err := chart.ReadFile("chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	full := struct {
		Draft string `json:"$schema"`
		Title string `json:"title"`
		schema
	}{}
	if err := decoder.Decode(&full); err != nil {
		t.Errorf("the schema uses what CheckValues does not know: %v", err)
	}
}

// withoutNetwork are values over others that leave the network out.
func withoutNetwork(values map[string]any) map[string]any {
	return merge(values, map[string]any{"network": map[string]any{"enabled": false}})
}

// With the network off nothing of it is there, and the manager does not ask for it.
func TestNetworkIsOff(t *testing.T) {
	for name, values := range map[string]map[string]any{"default": minimal(), "everything": everything()} {
		text := asText(t, render(t, withoutNetwork(values), Release{}))
		for _, not := range []string{"name: pelago-agent", "privileged: true", "7078", "hostNetwork: true", "kind: DaemonSet", "offloading,network"} {
			if strings.Contains(text, not) {
				t.Errorf("%s: without a network there is %s", name, not)
			}
		}
		// The policies name the namespace, which gives nobody anything.
		for _, o := range render(t, withoutNetwork(values), Release{}) {
			if o.GetNamespace() == "pelago-network" || o.GetName() == "pelago-network" {
				t.Errorf("%s: without a network there is %s %s", name, o.GetKind(), o.GetName())
			}
		}
		if text = asText(t, render(t, values, Release{})); !strings.Contains(text, "--rooms=peering,offloading,network\n") {
			t.Errorf("%s: the manager has no room network", name)
		}
	}
}

// Of all programs only the agent is privileged, on the host's network or root, and it runs
// in a namespace of its own; no program is where that is not allowed to others.
func TestOnlyTheAgentIsPrivileged(t *testing.T) {
	programs := map[string]bool{}
	for _, o := range render(t, everything(), Release{}) {
		spec, found, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		if !found {
			continue
		}
		agent := o.GetKind() == "DaemonSet" && o.GetNamespace() == "pelago-network" && o.GetName() == "pelago-agent"
		programs[o.GetNamespace()+"/"+o.GetName()] = true
		if !agent && o.GetNamespace() != "pelago-system" {
			t.Errorf("%s %s is in namespace %s", o.GetKind(), o.GetName(), o.GetNamespace())
		}
		if host, _ := spec["hostNetwork"].(bool); host != agent {
			t.Errorf("%s: on the host's network is %t", o.GetName(), host)
		}
		if spec["volumes"] != nil && strings.Contains(fmt.Sprint(spec["volumes"]), "hostPath") {
			t.Errorf("%s mounts files of nodes", o.GetName())
		}
		containers, _ := spec["containers"].([]any)
		for _, c := range containers {
			context, _ := c.(map[string]any)["securityContext"].(map[string]any)
			privileged, _ := context["privileged"].(bool)
			if privileged != agent || context["readOnlyRootFilesystem"] != true {
				t.Errorf("%s: %v", o.GetName(), context)
			}
			if agent {
				continue
			}
			if nonRoot, _, _ := unstructured.NestedBool(spec, "securityContext", "runAsNonRoot"); !nonRoot || context["allowPrivilegeEscalation"] != false {
				t.Errorf("%s may become root: %v", o.GetName(), context)
			}
		}
	}
	if len(programs) != 3 {
		t.Errorf("found the programs %v", programs)
	}
}

// What is bound to the agent is in the chart, and agents never run on virtual nodes. None is killed because another program
// of its node has the port that its metrics are at.
func TestAgent(t *testing.T) {
	var namespaced, agents bool
	for _, o := range render(t, everything(), Release{}) {
		switch {
		case o.GetKind() == "Namespace":
			namespaced = true
			for _, mode := range []string{"enforce", "audit", "warn"} {
				if o.GetName() != "pelago-network" || o.GetLabels()["pod-security.kubernetes.io/"+mode] != "privileged" {
					t.Errorf("namespace %s has the labels %v", o.GetName(), o.GetLabels())
				}
			}
		case o.GetKind() == "DaemonSet":
			agents = true
			text := asText(t, []*unstructured.Unstructured{o})
			for _, want := range []string{"key: pelago.dev/type\n                operator: NotIn\n", "dnsPolicy: ClusterFirstWithHostNet", "maxUnavailable: 3",
				"example.com/gateway: \"true\"", "kubernetes.io/os: linux", "priorityClassName: system-cluster-critical", "fieldPath: spec.nodeName", "- name: registry\n"} {
				if !strings.Contains(text, want) {
					t.Errorf("the DaemonSet lacks %q", want)
				}
			}
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			for _, probe := range []string{"startupProbe", "livenessProbe"} {
				command, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), probe, "exec", "command")
				if !slices.Equal(command, []string{"/pelago-agent", "alive", "--socket=/run/pelago/alive"}) || !strings.Contains(text, "--alive-socket=/run/pelago/alive\n") {
					t.Errorf("%s asks by %v", probe, command)
				}
			}
		}
	}
	if !namespaced || !agents {
		t.Errorf("there is the namespace: %t, the DaemonSet: %t", namespaced, agents)
	}
}

func TestMerge(t *testing.T) {
	own := map[string]any{"a": map[string]any{"x": 1, "y": 2}, "l": []any{1, 2}, "gone": 1}
	over := map[string]any{"a": map[string]any{"y": 3}, "l": []any{4}, "gone": nil, "new": "n"}
	want := map[string]any{"a": map[string]any{"x": 1, "y": 3}, "l": []any{4}, "new": "n"}
	if diff := cmp.Diff(want, merge(own, over)); diff != "" {
		t.Error(diff)
	}
	if own["a"].(map[string]any)["y"] != 2 {
		t.Error("merging changed the chart's own values")
	}
}
