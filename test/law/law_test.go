package law

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	rootModule    = "module example.org/p\n"
	sandboxModule = "module example.org/p/sandbox\n"
)

// TestLaws feeds each law a small made-up tree that breaks it, and one beside it that
// does not: a law that cannot fail is none.
func TestLaws(t *testing.T) {
	laws := map[string]func(Tree) []string{
		"imports": Imports, "modules": Modules, "names": Names, "lengths": Lengths,
		"words": Words, "packagedocs": PackageDocs, "documented": Documented, "metrics": Metrics, "fuzzed": Fuzzed, "limiters": Limiters,
	}
	cases := []struct {
		law    string
		reason string
		texts  map[string]string
		want   []string // a part of each finding, in order
	}{
		{"imports", "the layers in their order are the intended shape", files(
			"cmd/pelago/main.go", `package main; import _ "example.org/p/peering"; import _ "example.org/p/internal/fleet"`,
			"peering/peering.go", `package peering; import _ "example.org/p/internal/fleet"; import _ "example.org/p/api/v1"`,
			"internal/fleet/fleet.go", `package fleet; import _ "example.org/p/api/v1"; import _ "example.org/p/internal/errs"`,
			"internal/errs/errs.go", `package errs; import _ "net"`,
			"api/v1/v1.go", `package v1; import _ "k8s.io/apimachinery/pkg/runtime"; import _ "time"`,
			"network/network.go", `package network; import _ "example.org/p/network/ipam"`,
			"network/ipam/ipam.go", `package ipam`,
			"test/all_test.go", `package test; import _ "example.org/p/test/law"; import _ "example.org/p/peering"`,
			"bench/all_test.go", `package bench; import _ "example.org/p/peering"`,
			"test/law/law.go", `package law`,
		), nil},
		{"imports", "a room that imports a room starts the knot every large operator ends in", files(
			"peering/peering.go", `package peering; import _ "example.org/p/network/ipam"`,
			"network/ipam/ipam.go", `package ipam`,
		), []string{"peering/peering.go: imports example.org/p/network/ipam: rooms never import rooms"}},
		{"imports", "a room's tests are part of the room", files(
			"peering/a_test.go", `package peering_test; import _ "example.org/p/network"`,
			"network/network.go", `package network`,
		), []string{"rooms never import rooms"}},
		{"imports", "internal is below the rooms and api below internal", files(
			"internal/fleet/fleet.go", `package fleet; import _ "example.org/p/peering"`,
			"api/v1/v1.go", `package v1; import _ "example.org/p/internal/fleet"`,
			"peering/peering.go", `package peering; import _ "example.org/p/cmd/pelago"`,
			"cmd/pelago/main.go", `package main`,
		), []string{"api/v1/v1.go", "internal/fleet/fleet.go", "peering/peering.go"}},
		{"imports", "whoever imports our kinds must not get client-go with them", files(
			"api/v1/v1.go", `package v1; import _ "k8s.io/client-go/rest"`,
		), []string{"apimachinery only"}},
		{"imports", "the chart is a leaf that the installer embeds, and needs nothing of ours", files(
			"cli/cli.go", `package cli; import _ "example.org/p/deploy"`,
			"deploy/deploy.go", `package deploy; import _ "sigs.k8s.io/yaml"; import _ "text/template"`,
		), nil},
		{"imports", "a chart that imports a room, or even the kinds, is no leaf", files(
			"deploy/deploy.go", `package deploy; import _ "example.org/p/cli"; import _ "example.org/p/api/v1"`,
			"cli/cli.go", `package cli`, "api/v1/v1.go", `package v1`,
		), []string{"deploy/deploy.go: imports example.org/p/api/v1", "deploy/deploy.go: imports example.org/p/cli"}},
		{"imports", "the product never depends on the sandbox, in a module of its own or not", files(
			"peering/peering.go", `package peering; import _ "example.org/p/sandbox/config"`,
			"sandbox/config/config.go", `package config`,
		), []string{"nothing imports the sandbox"}},
		{"imports", "the sandbox is usable without the product", files(
			"sandbox/config/config.go", `package config; import _ "example.org/p/api/v1"; import _ "example.org/p/sandbox/machine"`,
			"sandbox/machine/machine.go", `package machine; import _ "example.org/p/sandbox/config"`,
			"api/v1/v1.go", `package v1`,
		), []string{"imports none of the product's code"}},
		{"fuzzed", "a fuzz test has inputs beside it, those of others are no matter of it", files(
			"peering/a_test.go", "package peering; import \"testing\"; func FuzzA(*testing.F) {}; func FuzzB(*testing.F) {}",
			"peering/testdata/fuzz/FuzzA/1", "go test fuzz v1", "network/testdata/fuzz/FuzzB/1", "go test fuzz v1",
			"sandbox/go.mod", sandboxModule,
			"sandbox/config/a_test.go", "package config; import \"testing\"; func FuzzC(*testing.F) {}",
		), []string{"peering/a_test.go: nothing is in peering/testdata/fuzz/FuzzB"}},
		{"metrics", "what is measured is described, and nothing else is", files(
			"peering/peering.go", "package peering; const a = \"pelago_things\"; const b = \"pelago_others\"",
			"docs/metrics.md", "`pelago_things` counts things, `pelago_ghosts` ghosts",
		), []string{"docs/metrics.md: there is no metric pelago_ghosts", "metric pelago_others is not in docs/metrics.md"}},
		{"metrics", "dashboards and alerts name only what is measured", files(
			"peering/peering.go", "package peering; const a = \"pelago_things\"; const b = \"pelago_seconds\"",
			"docs/metrics.md", "`pelago_things` counts things, `pelago_seconds` seconds",
			"deploy/chart/monitoring/rules.yaml", "expr: rate(pelago_things[5m]) > sum(pelago_seconds_bucket) + pelago_thing",
		), []string{"deploy/chart/monitoring/rules.yaml: there is no metric pelago_thing"}},
		{"limiters", "a controller has a back-off of its own; a test's needs none", files(
			"a/a.go", "package a\n\nvar _ = ctrl.NewControllerManagedBy(m).WithOptions(controller.Options{RateLimiter: x()})\n",
			"a/b.go", "package a\n\nvar _ = ctrl.NewControllerManagedBy(m)\n",
			"a/a_test.go", "package a\n\nvar _ = ctrl.NewControllerManagedBy(m)\n",
		), []string{"a/b.go: 0 of 1"}},
		{"modules", "plain requirements are fine, indirect ones are not counted", map[string]string{
			"go.mod": rootModule + "require (\n\ta.org/x v1.0.0\n)\n" + many(40, "// indirect"),
		}, nil},
		{"modules", "a replace does not reach those who require the module", map[string]string{
			"go.mod":    rootModule + "replace a.org/x => ../x\n",
			"tools.mod": rootModule + "replace (\n\tb.org/y v1.0.0 => c.org/y v1.0.1\n)\n",
		}, []string{"go.mod: replace of a.org/x", "tools.mod: replace of b.org/y"}},
		{"modules", "few dependencies", map[string]string{"go.mod": rootModule + many(31, "")}, []string{"31 direct requirements"}},
		{"modules", "Kubernetes itself stays out of the product, and no workspace changes versions", map[string]string{
			"go.mod":         rootModule + "require k8s.io/kubernetes v1.36.3\n",
			"sandbox/go.mod": sandboxModule + "require k8s.io/kubernetes v1.36.3\n" + many(40, ""),
			"go.work":        "go 1.26\n",
		}, []string{"go.mod: requires k8s.io/kubernetes", "go.work: a workspace"}},
		{"names", "one noun per directory; mains, and outside tests, are named as Go wants", files(
			"peering/peering.go", `package peering`, "peering/a_test.go", `package peering_test`,
			"cmd/pelago-agent/main.go", `package main`, "cmd/pelago/main.go", `package main`, "p.go", `package p`,
			"sandbox/peering/peering.go", `package peering`, "sandbox/addons/dns/main.go", `package main`,
		), nil},
		{"names", "names that say nothing, and names that differ from their directory", files(
			"utils/utils.go", `package utils`, "net-control/n.go", `package netcontrol`, "ipam/i.go", `package IPAM`,
		), []string{"ipam: package name IPAM", "net-control: holds package netcontrol", "utils: package name utils says nothing"}},
		{"names", "a name used twice makes every import ambiguous to the reader", files(
			"broker/catalog/c.go", `package catalog`, "marketplace/catalog/c.go", `package catalog`,
		), []string{"marketplace/catalog: package name catalog is taken by broker/catalog"}},
		{"names", "deep trees hide their size", files("network/gateway/server/s.go", `package server`), []string{"3 directories deep"}},
		{"names", "one directory is one package", files("a/a.go", `package a`, "a/b.go", `package b`), []string{"a/a.go: package a in a directory of package b", "holds package b"}},
		{"lengths", "long, but at the limit", files("a/a.go", "package a\n"+strings.Repeat("\n", 698)), nil},
		{"lengths", "a file is one thing; generated ones are nobody's to read", files(
			"a/a.go", "package a\n"+strings.Repeat("\n", 699),
			"a/b.go", "// Code generated by x. DO NOT EDIT.\n\npackage a\n"+strings.Repeat("\n", 900),
		), []string{"a/a.go: 701 lines"}},
		{"words", "our own paths, module names and links are fine", map[string]string{
			"go.mod": rootModule, "a.md": "see https://golang.org/doc, docs/work/main, /work/box in a pod and ./work/shared\n", "b.bin": "\x00 /wor" + "k/main",
		}, nil},
		{"words", "a path or a mirror of one workplace works nowhere else", map[string]string{
			"a.md": "fine\nrun it in /wor" + "k/main\n", "b.sh": "GOPROXY=https://pro" + "xy.golang.org\n", "c": "http://de" + "b.debian.org/x\n",
		}, []string{"a.md:2:", "b.sh:1:", "c:1:"}},
		{"packagedocs", "one sentence in one file", files(
			"a/a.go", "// Package a does one thing.\npackage a", "a/b.go", "// +build stuff\n\npackage a", "a/a_test.go", "package a",
			"b/b_test.go", "// Package b tests things.\npackage b",
		), nil},
		{"packagedocs", "none, two, half of one, and one that only tests have", files(
			"a/a.go", "package a", "a/a_test.go", "// Package a is documented in the wrong place.\npackage a",
			"b/b.go", "// Package b is here.\npackage b", "b/c.go", "// Package b is there.\npackage b",
			"c/c.go", "// Package c\npackage c",
		), []string{"a: no package comment", "b: 2 package comments", "c/c.go: the package comment is not a sentence"}},
		{"documented", "each exported name, or its group, says what it is", files(
			"a/a.go", "package a\n\n// T is.\ntype T struct{}\n\n// M does.\nfunc (T) M() {}\n\nfunc (t t) M() {}\n\ntype t int\n\n// Sizes.\nconst (\n\tA = 1\n\tB = 2\n)\n\nvar V = 1 // V is.\n",
			"a/a_test.go", "package a\n\nfunc TestX() {}\n",
			"a/z.go", "// Code generated by x. DO NOT EDIT.\n\npackage a\n\nfunc Generated() {}\n",
		), nil},
		{"documented", "every kind of declaration", files(
			"a/a.go", "package a\n\ntype T[X any] struct{}\n\nfunc (*T[X]) M() {}\n\nfunc F() {}\n\nconst A = 1\n\nvar B, c = 1, 2\n\n// Group.\ntype (\n\tD int\n)\n",
		), []string{"A has", "B has", "D has", "F has", "M has", "T has"}},
	}
	for _, c := range cases {
		t.Run(c.law, func(t *testing.T) {
			tree, err := Parse(c.texts)
			if err != nil {
				t.Fatalf("%s: %v", c.reason, err)
			}
			got := laws[c.law](tree)
			if len(got) != len(c.want) {
				t.Fatalf("%s: findings (-want parts +got):\n%s", c.reason, cmp.Diff(c.want, got))
			}
			for i, part := range c.want {
				if !strings.Contains(got[i], part) {
					t.Errorf("%s: finding %d is %q, want it to contain %q", c.reason, i, got[i], part)
				}
			}
		})
	}
}

// TestParse holds the inputs that are no tree.
func TestParse(t *testing.T) {
	cases := []struct {
		reason string
		texts  map[string]string
		want   string
	}{
		{"code that does not compile hides what it imports", files("a/a.go", "package"), "parsing a/a.go"},
		{"a Go file outside any module is built by nobody", map[string]string{"a/a.go": "package a"}, "no go.mod above it"},
		{"a module needs a name", map[string]string{"go.mod": "go 1.26\n"}, "no module line"},
		{"testdata is data", files("a/testdata/x.go", "package"), ""},
	}
	for _, c := range cases {
		_, err := Parse(c.texts)
		if got := errorText(err); !strings.Contains(got, c.want) || (c.want == "") != (err == nil) {
			t.Errorf("%s: error %q, want it to contain %q", c.reason, got, c.want)
		}
	}
}

// files makes a tree of the product and its sandbox from pairs of path and text.
func files(pairs ...string) map[string]string {
	texts := map[string]string{"go.mod": rootModule, "sandbox/go.mod": sandboxModule}
	for i := 0; i+1 < len(pairs); i += 2 {
		texts[pairs[i]] = strings.ReplaceAll(pairs[i+1], "; import", "\nimport") + "\n"
	}
	return texts
}

// many requires n modules, each line ending in mark.
func many(n int, mark string) string {
	var b strings.Builder
	b.WriteString("require (\n")
	for i := range n {
		b.WriteString("\ta.org/m" + strings.Repeat("x", i) + " v1.0.0 " + mark + "\n")
	}
	return b.String() + ")\n"
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
