package content

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const shopPaths = `"paths":[{"path":"/","pathType":"Prefix","service":"web","port":80}]`

func shopRule(host string) string {
	return fmt.Sprintf(`{"content":{"rules":[{"host":%q,%s}]}}`, host, shopPaths)
}

func TestIngress(t *testing.T) {
	rules := Rules{IngressHosts: []string{"shop.example", "rome.example"}, IngressClass: "tenants"}
	testDecode(t, "Ingress", rules, []decoding{
		{"a host that is allowed", shopRule("shop.example"), ""},
		{"one below", shopRule("a.b.shop.example"), ""},
		{"all below", shopRule("*.rome.example"), ""},
		{"with TLS", `{"content":{"tls":[{"hosts":["shop.example"],"secret":"cert"}],"rules":[{"host":"shop.example",` + shopPaths + `}]}}`, ""},
		{"somebody else's host", shopRule("bank.example"), "not under one"},
		{"one that only ends like it", shopRule("webshop.example"), "not under one"},
		{"one above", shopRule("example"), "not under one"},
		{"a wildcard above", shopRule("*.example"), "not under one"},
		{"something else before it", shopRule("bank.example/.shop.example"), "rules[0].host"},
		{"two stars", shopRule("*.*.shop.example"), "rules[0].host"},
		{"a host and an order", shopRule("x;}.shop.example"), "rules[0].host"},
		{"a host in capitals", shopRule("A.shop.example"), "rules[0].host"},
		{"every host", shopRule(""), "all hosts"},
		{"TLS for a host and an order", `{"content":{"tls":[{"hosts":["shop.example","x;.shop.example"]}],"rules":[{"host":"shop.example",` + shopPaths + `}]}}`, "tls[0].hosts[1]"},
		{"TLS by what is no name", `{"content":{"tls":[{"hosts":["shop.example"],"secret":"kube-system/x"}],"rules":[{"host":"shop.example",` + shopPaths + `}]}}`, "tls[0].secret"},
		{"TLS for another host", `{"content":{"tls":[{"hosts":["bank.example"]}],"rules":[{"host":"shop.example",` + shopPaths + `}]}}`, "not under one"},
		{"TLS for every host", `{"content":{"tls":[{"secret":"x"}],"rules":[{"host":"shop.example",` + shopPaths + `}]}}`, "hosts; from 1"},
		{"no rules", `{"content":{}}`, "no rules"},
		{"no paths", `{"content":{"rules":[{"host":"shop.example"}]}}`, "0 paths"},
		{"too many", `{"content":{"rules":[` + strings.Repeat(`{"host":"shop.example",`+shopPaths+`},`, maxRules) + `{"host":"shop.example",` + shopPaths + `}]}}`, "101 rules"},
		{"a class of its own choice", `{"content":{"class":"internal","rules":[]}}`, "class"},
		{"a default backend", `{"content":{"defaultBackend":{}}}`, "defaultBackend"},
		{"orders to the controller", `{"annotations":{"note":"x"},"content":{"rules":[{"host":"shop.example",` + shopPaths + `}]}}`, "annotations do not travel"},
	})
	o, _ := Kinds["Ingress"].Decode(shopRule("shop.example"), rules)
	if got := o.(*networkingv1.Ingress).Spec; got.IngressClassName == nil || *got.IngressClassName != "tenants" || got.DefaultBackend != nil || got.Rules[0].HTTP.Paths[0].Backend.Service.Port.Number != 80 {
		t.Errorf("%+v", got)
	}
	if _, wrong := Kinds["Ingress"].Decode(shopRule("shop.example"), Rules{}); !strings.Contains(wrong, "takes no Ingresses") {
		t.Errorf("not allowed: %q", wrong)
	}
}

// TestIngressPaths: nothing that a controller could take for an order passes in the fields of
// a path, whatever the API server thinks of it.
func TestIngressPaths(t *testing.T) {
	rules := Rules{IngressHosts: []string{"shop.example"}, IngressClass: "tenants"}
	text := func(fields map[string]any) string {
		path := map[string]any{"path": "/", "pathType": "Prefix", "service": "web", "port": 80}
		maps.Copy(path, fields)
		all, err := json.Marshal(map[string]any{"content": map[string]any{"rules": []any{map[string]any{"host": "shop.example", "paths": []any{path}}}}})
		if err != nil {
			t.Fatal(err)
		}
		return string(all)
	}
	var cases []decoding
	for _, path := range []string{"/", "/a/b", "/a-b/.well-known/~me/x_1", "/" + strings.Repeat("x", maxPath-1)} {
		cases = append(cases, decoding{path, text(map[string]any{"path": path}), ""})
	}
	for _, path := range []string{
		"", "a", "*", "/ x", "/\n}", "/x\n", "/x;", "/{", "/}", `/"`, "/'", "/$uri", "/#", "/\\x", "/x|y", "/(a)", "/[a]", "/a*", "/a+", "/^", "/%0a", "/?a=b", "/ä", "/\x00",
		`/" { lua_need_request_body on; } location /x`,
	} {
		cases = append(cases, decoding{path, text(map[string]any{"path": path}), "rules[0].paths[0].path: "})
	}
	cases = append(cases,
		decoding{"a byte more", text(map[string]any{"path": "/" + strings.Repeat("x", maxPath)}), "path: 1025 bytes, at most 1024"},
		decoding{"Exact", text(map[string]any{"pathType": "Exact"}), ""},
		decoding{"what each controller likes", text(map[string]any{"pathType": "ImplementationSpecific"}), "paths[0].pathType"},
		decoding{"nothing", text(map[string]any{"pathType": ""}), "paths[0].pathType"},
		decoding{"its own", text(map[string]any{"pathType": "Prefix\n"}), "paths[0].pathType"},
		decoding{"a Service elsewhere", text(map[string]any{"service": "kube-system/web"}), "paths[0].service"},
		decoding{"no Service", text(map[string]any{"service": ""}), "paths[0].service"},
		decoding{"a port by name", text(map[string]any{"port": 0, "portName": "http"}), ""},
		decoding{"both", text(map[string]any{"portName": "http"}), "either port"},
		decoding{"neither", text(map[string]any{"port": 0}), "either port"},
		decoding{"none of the ports", text(map[string]any{"port": 70000}), "paths[0].port"},
		decoding{"a port by what is no name", text(map[string]any{"port": 0, "portName": "a;b"}), "paths[0].portName"},
	)
	testDecode(t, "Ingress", rules, cases)
}

func TestEncodeIngress(t *testing.T) {
	make := func(edit func(*networkingv1.Ingress)) *networkingv1.Ingress {
		i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"note": "x"}}, Spec: networkingv1.IngressSpec{IngressClassName: new("internal"),
			TLS: []networkingv1.IngressTLS{{Hosts: []string{"a.b"}, SecretName: "cert"}},
			Rules: []networkingv1.IngressRule{{Host: "a.b", IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{PathType: new(networkingv1.PathTypePrefix), Path: "/", Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Name: "http"}}}}}}}}}}}
		edit(i)
		return i
	}
	text, wrong := Kinds["Ingress"].Encode(make(func(*networkingv1.Ingress) {}))
	want := `{"content":{"tls":[{"hosts":["a.b"],"secret":"cert"}],"rules":[{"host":"a.b","paths":[{"path":"/","pathType":"Prefix","service":"web","portName":"http"}]}]}}`
	if diff := cmp.Diff(want, text); diff != "" || wrong != "" {
		t.Error(wrong, diff)
	}
	for _, c := range []struct {
		wrong string
		edit  func(*networkingv1.Ingress)
	}{
		{"default backend", func(i *networkingv1.Ingress) { i.Spec.DefaultBackend = &networkingv1.IngressBackend{} }},
		{"no paths", func(i *networkingv1.Ingress) { i.Spec.Rules[0].HTTP = nil }},
		{"no Service", func(i *networkingv1.Ingress) { i.Spec.Rules[0].HTTP.Paths[0].Backend.Service = nil }},
		{"all hosts", func(i *networkingv1.Ingress) { i.Spec.Rules[0].Host = "" }},
		{`rules[0].paths[0].pathType: "Glob" means`, func(i *networkingv1.Ingress) {
			i.Spec.Rules[0].HTTP.Paths[0].PathType = new(networkingv1.PathType("Glob"))
		}},
	} {
		if _, wrong := Kinds["Ingress"].Encode(make(c.edit)); !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q", c.wrong, wrong)
		}
	}
}

// TestEncodeOwnPaths: a path that each controller reads as it likes goes as a prefix if it is one, and
// its owner is told; with anything in it that some controller reads otherwise it stays home.
func TestEncodeOwnPaths(t *testing.T) {
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
	path := func(kind networkingv1.PathType, path string) networkingv1.HTTPIngressPath {
		return networkingv1.HTTPIngressPath{PathType: &kind, Path: path, Backend: backend}
	}
	const own, exact, prefix = networkingv1.PathTypeImplementationSpecific, networkingv1.PathTypeExact, networkingv1.PathTypePrefix
	rules := Rules{IngressHosts: []string{"example"}, IngressClass: "tenants"}
	for _, c := range []struct {
		reason string
		paths  []networkingv1.HTTPIngressPath
		want   []networkingv1.HTTPIngressPath // at the provider; none if it stays home
		told   string
	}{
		{"as charts made by helm create have it", []networkingv1.HTTPIngressPath{path(own, "/")}, []networkingv1.HTTPIngressPath{path(prefix, "/")}, `1 of its paths, the first one "/", have the pathType ImplementationSpecific and are of the pathType Prefix there`},
		{"the others stay what they are", []networkingv1.HTTPIngressPath{path(exact, "/a"), path(own, "/b/.x-y_z~"), path(own, "/c"), path(prefix, "/d")},
			[]networkingv1.HTTPIngressPath{path(exact, "/a"), path(prefix, "/b/.x-y_z~"), path(prefix, "/c"), path(prefix, "/d")}, `2 of its paths, the first one "/b/.x-y_z~",`},
		{"nothing is otherwise", []networkingv1.HTTPIngressPath{path(exact, "/"), path(prefix, "/")}, []networkingv1.HTTPIngressPath{path(exact, "/"), path(prefix, "/")}, ""},
		{"no path at all, which some take for all of them", []networkingv1.HTTPIngressPath{path(own, "")}, nil, `rules[0].paths[0].path: "" with the pathType ImplementationSpecific`},
		{"a regular expression", []networkingv1.HTTPIngressPath{path(prefix, "/"), path(own, "/api(/|$)(.*)")}, nil, `rules[0].paths[1].path: "/api(/|$)(.*)" with the pathType ImplementationSpecific`},
		{"as some controllers write prefixes", []networkingv1.HTTPIngressPath{path(own, "/*")}, nil, "write it so, or give it the pathType Exact or Prefix"},
		{"what does not begin with a /", []networkingv1.HTTPIngressPath{path(own, "api")}, nil, "rules[0].paths[0].path: "},
		{"an order", []networkingv1.HTTPIngressPath{path(own, "/x;}")}, nil, "rules[0].paths[0].path: "},
		{"too long", []networkingv1.HTTPIngressPath{path(own, "/"+strings.Repeat("x", maxPath))}, nil, "rules[0].paths[0].path: 1025 bytes"},
	} {
		i := &networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a.example",
			IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: c.paths}}}}}}
		text, told := Kinds["Ingress"].Encode(i)
		if c.want == nil {
			if text != "" || !strings.Contains(told, c.told) {
				t.Errorf("%s: %q, and told %q, not %q", c.reason, text, told, c.told)
			}
			continue
		}
		made, wrong := Kinds["Ingress"].Decode(text, rules)
		if told != "" || wrong != "" {
			t.Errorf("%s: %q at home, %q there", c.reason, told, wrong)
			continue
		}
		if diff := cmp.Diff(c.want, made.(*networkingv1.Ingress).Spec.Rules[0].HTTP.Paths); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
		if told := Kinds["Ingress"].Cut(i); (told == "") != (c.told == "") || !strings.Contains(told, c.told) {
			t.Errorf("%s: told %q, not %q", c.reason, told, c.told)
		}
	}
}
