package dns

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestNote holds that who reads a note answers each pod on the node as who wrote it did, and everybody else as nobody,
// that it has nothing of tenants without pods here, and that it is another one only when something is otherwise.
func TestNote(t *testing.T) {
	x := NewIndex("milan-1")
	for _, n := range []*corev1.Namespace{
		space("shop-rome", "rome", "shop", 0, true), space("shop-rome-2", "rome", "shop", time.Hour, false), space("bank-rome", "rome", "bank", 0, false),
		space("bank-naples", "naples", "bank", 0, false), from("far-rome", "rome", "far", "shop", milan),
	} {
		x.SetNamespace(n)
	}
	domain := func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationHomeDomain: "rome.example"} }
	later := func(p *corev1.Pod) { p.CreationTimestamp.Time = begin.Add(time.Minute) }
	x.SetPod(podOf("shop-rome", "web", "milan-1", domain, "10.42.0.5", "fd42::5"))
	x.SetPod(podOf("bank-rome", "old", "milan-1", nil, "10.42.0.6"))
	x.SetPod(podOf("far-rome", "new", "milan-1", later, "10.42.0.6"))
	x.SetPod(podOf("kube-system", "web", "milan-1", nil, "10.42.0.7"))
	x.SetPod(podOf("shop-rome", "other", "milan-2", nil, "10.42.1.5"))
	b, err := x.Note()
	if err != nil || bytes.Contains(b, []byte("naples")) {
		t.Fatalf("noted is %s, %v", b, err)
	}
	y, err := ReadIndex("milan-1", b)
	if err != nil {
		t.Fatal(err)
	}
	for address, is := range map[string]bool{"10.42.0.5": true, "fd42::5": true, "10.42.0.6": true, "10.42.0.7": false, "10.42.1.5": false} {
		want, known := x.Client(netip.MustParseAddr(address))
		got, ok := y.Client(netip.MustParseAddr(address))
		if d := cmp.Diff(want, got); d != "" || ok != is || known != is {
			t.Errorf("%s is known %t and %t (-want +got):\n%s", address, known, ok, d)
		}
	}
	if again, err := y.Note(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("who has read %s notes %s, %v", b, again, err)
	}
	<-x.News()
	for reason, change := range map[string]func(){
		"a pod":                func() { x.SetPod(podOf("bank-rome", "one-more", "milan-1", nil, "10.42.0.8")) },
		"a pod that has ended": func() { x.DeletePod("bank-rome", "old") },
		"a namespace":          func() { x.SetNamespace(space("desk-rome", "rome", "desk", 0, false)) },
		"a namespace less":     func() { x.DeleteNamespace("shop-rome") },
	} {
		before, _ := x.Note()
		change()
		if after, _ := x.Note(); len(x.News()) == 0 || bytes.Equal(before, after) {
			t.Errorf("%s: nobody is told, or nothing else is noted: %s", reason, after)
		}
		<-x.News()
	}
	x.SetPod(podOf("bank-rome", "far", "milan-2", nil, "10.42.1.8"))
	x.DeletePod("bank-rome", "never-there")
	if len(x.News()) > 0 {
		t.Error("what is on another node is told of")
	}
	if _, err := ReadIndex("milan-1", []byte(`{"Pods": "c2Vj`)); err == nil || strings.Contains(err.Error(), "c2Vj") {
		t.Errorf("what is no note is read, or quoted: %v", err)
	}
}
