package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// dashboard is what of Grafana's model has to be right.
type dashboard struct {
	UID    string  `json:"uid"`
	Panels []panel `json:"panels"`
}

type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		H, W, X, Y int
	} `json:"gridPos"`
	Targets []struct {
		RefID      string            `json:"refId"`
		Expr       string            `json:"expr"`
		Datasource map[string]string `json:"datasource"`
	} `json:"targets"`
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := chart.ReadFile("chart/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.UID == "" || len(d.Panels) < 20 {
		t.Fatalf("the dashboard has the uid %q and %d panels", d.UID, len(d.Panels))
	}
	return d
}

// Grafana shows panels with one number, or in one place, one over the other, and says nothing.
func TestDashboard(t *testing.T) {
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] != "" {
			t.Errorf("%s and %s have the id %d", ids[p.ID], p.Title, p.ID)
		}
		ids[p.ID] = p.Title
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is at %+v of 24 columns", p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" && other != p.Title {
					t.Fatalf("%s covers %s", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%s, a %s, has %d queries", p.Title, p.Type, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Expr == "" || q.RefID == "" || q.Datasource["uid"] != "${datasource}" {
				t.Errorf("a query of %s is %+v", p.Title, q)
			}
		}
	}
}

// alerts are the rules, by name.
func alerts(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := chart.ReadFile("chart/monitoring/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Groups []struct {
			Rules []struct {
				Alert       string            `json:"alert"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	named := map[string]map[string]string{}
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || named[r.Alert] != nil {
				t.Errorf("an alert is called %q, as another one is or none", r.Alert)
			}
			named[r.Alert] = r.Annotations
		}
	}
	return named
}

// Every alert says what is wrong and what to do, and promtool tries it both ways.
func TestAlertsAreTried(t *testing.T) {
	text, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tries struct {
		Tests []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert    string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(text, &tries); err != nil {
		t.Fatal(err)
	}
	named, fires, quiet := alerts(t), map[string]bool{}, map[string]bool{}
	for _, try := range tries.Tests {
		for _, r := range try.Rules {
			if named[r.Alert] == nil {
				t.Errorf("%s: there is no alert %s", try.Name, r.Alert)
			}
			if len(r.Expected) > 0 {
				fires[r.Alert] = true
			} else {
				quiet[r.Alert] = true
			}
		}
	}
	for name, says := range named {
		if !fires[name] || !quiet[name] {
			t.Errorf("alert %s is not tried both ways", name)
		}
		if says["summary"] == "" || says["description"] == "" {
			t.Errorf("alert %s says %v", name, says)
		}
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if count := regexp.MustCompile(`\[(\d+) alerts\]`).FindStringSubmatch(string(page)); count == nil || count[1] != strconv.Itoa(len(named)) {
		t.Errorf("docs/metrics.md says %v, and there are %d: %s", count, len(named), strings.Join(slices.Sorted(maps.Keys(named)), ", "))
	}
}
