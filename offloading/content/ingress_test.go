package content

import (
	"fmt"
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
		{"something else before it", shopRule("bank.example/.shop.example"), "not under one"},
		{"two stars", shopRule("*.*.shop.example"), "not under one"},
		{"every host", shopRule(""), "all hosts"},
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
	} {
		if _, wrong := Kinds["Ingress"].Encode(make(c.edit)); !strings.Contains(wrong, c.wrong) {
			t.Errorf("%s: %q", c.wrong, wrong)
		}
	}
}
