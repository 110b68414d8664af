package tenant

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// page reads a page of the documentation.
func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// number is how pages write one.
func number(n int32) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// TestObjectsPage holds that the page of the Tenant says how many objects there may be,
// by default and at most.
func TestObjectsPage(t *testing.T) {
	text := page(t, "kinds/tenant.md")
	for name, bound := range objectBounds {
		if most, is := objectMost[name]; is {
			if row := fmt.Sprintf("| `%s` | %s | %s |", name, number(bound), number(most)); !strings.Contains(text, row) {
				t.Errorf("docs/kinds/tenant.md has no row %s", row)
			}
			continue
		}
		if row := fmt.Sprintf("`%s` | %s | |", name, number(bound)); bound > 0 && !strings.Contains(text, row) {
			t.Errorf("docs/kinds/tenant.md has no row that ends in %s", row)
		}
	}
	pods := number(objectBounds["shadowpods.pelago.dev"])
	if !strings.Contains(page(t, "offloading.md"), pods+" pods there") {
		t.Errorf("docs/offloading.md does not say that a consumer has %s pods at a provider by default", pods)
	}
}

// TestRightsPage holds that both pages which list what a consumer may do name all of it.
func TestRightsPage(t *testing.T) {
	words := map[string]string{
		"identities": "Identity", "leases": "Lease", "resourcerequests": "ResourceRequests", "resourceoffers": "ResourceOffers", "podstats": "podstats",
		"namespacemaps": "NamespaceMap", "shadowpods": "ShadowPods", "shadowobjects": "ShadowObjects", "networkconfigs": "NetworkConfig",
		"networkconfigs/status": "status", "networkrules": "NetworkRules", "networkpaths": "NetworkPaths", "serviceaccounts/token": "token",
		"pods/log": "logs", "pods/exec": "run commands", "pods/attach": "attach", "pods/portforward": "forward ports",
	}
	_, may, _ := strings.Cut(page(t, "kinds/tenant.md"), "\n## What a tenant may do\n")
	_, rights, found := strings.Cut(page(t, "peering.md"), "\n- **Rights**:")
	rights, _, _ = strings.Cut(rights, "\n- **")
	if may == "" || !found {
		t.Fatal("the lists are not where they were")
	}
	for role, rules := range Rights() {
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				word := words[resource]
				if word == "" {
					t.Errorf("%s: no word for %s is known here", role, resource)
				}
				for name, text := range map[string]string{"kinds/tenant.md": may, "peering.md": rights} {
					if !strings.Contains(text, word) {
						t.Errorf("docs/%s does not say that a consumer may have %s (%q)", name, resource, word)
					}
				}
			}
		}
	}
}
