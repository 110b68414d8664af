package law

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// metricsPage describes every metric.
const metricsPage = "docs/metrics.md"

var (
	metricName   = regexp.MustCompile(`^pelago_[a-z0-9_]+$`)
	metricInExpr = regexp.MustCompile(`\bpelago_[a-z0-9_]+`)
	metricInPage = regexp.MustCompile("`(pelago_[a-z0-9_]+)`")
)

// monitoring is where dashboards and alerts are.
const monitoring = "deploy/chart/monitoring/"

// Metrics finds metrics of the product that docs/metrics.md does not describe, and
// those that it, a dashboard or an alert names and no program has. A metric is a string in
// the code that is exactly its name.
func Metrics(tree Tree) []string {
	product := productPath(tree)
	defined := map[string]string{}
	for _, p := range tree.Packages {
		if p.Module != product || room(p) == "test" || room(p) == "bench" {
			continue
		}
		for _, file := range p.Files {
			if file.Test {
				continue
			}
			ast.Inspect(file.Syntax, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				if name, err := strconv.Unquote(literal.Value); err == nil && metricName.MatchString(name) {
					defined[name] = file.Path
				}
				return true
			})
		}
	}
	described := map[string]bool{}
	for _, match := range metricInPage.FindAllStringSubmatch(tree.Texts[metricsPage], -1) {
		described[match[1]] = true
	}
	var found []string
	for name, path := range defined {
		if !described[name] {
			found = append(found, fmt.Sprintf("%s: metric %s is not in %s; describe it there", path, name, metricsPage))
		}
	}
	for name := range described {
		if defined[name] == "" {
			found = append(found, fmt.Sprintf("%s: there is no metric %s", metricsPage, name))
		}
	}
	for path, text := range tree.Texts {
		if !strings.HasPrefix(path, monitoring) {
			continue
		}
		for _, name := range metricInExpr.FindAllString(text, -1) {
			of := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} { // of histograms
				of = strings.TrimSuffix(of, suffix)
			}
			if defined[name] == "" && defined[of] == "" {
				found = append(found, fmt.Sprintf("%s: there is no metric %s", path, name))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}
