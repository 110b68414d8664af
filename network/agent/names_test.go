package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dns"
)

// TestNamesNoted holds that the next process knows who asks for names while nothing is read yet, by that alone, and
// goes by what is read as soon as all is; that what changes is noted; and that too much is not, nor left as it was.
func TestNamesNoted(t *testing.T) {
	space := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: labelled("", name, v1alpha1.LabelTenant, "rome", v1alpha1.LabelHomeNamespace, name)}
	}
	web := &corev1.Pod{ObjectMeta: labelled("shop", "web"), Spec: corev1.PodSpec{NodeName: "milan-1"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.42.0.5"}}}}
	at := netip.MustParseAddr("10.42.0.5")
	k := notes{t: t, held: map[string]*os.File{}}
	synctest.Test(t, func(t *testing.T) {
		first := &names{index: dns.NewIndex("milan-1"), keeper: k, log: logr.Discard()}
		first.index.SetNamespace(space("shop"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { first.note(ctx); close(ended) }()
		synctest.Wait()
		if k.held[namesNote] == nil {
			t.Fatal("nothing is noted at first")
		}
		first.index.SetPod(web)
		pause(ctx, 2*notePace) // by the clock of this bubble
		synctest.Wait()

		next := &names{index: dns.NewIndex("milan-1"), keeper: k, log: logr.Discard()}
		next.read("milan-1", k.held[namesNote])
		next.index.SetPod(web)
		next.index.SetNamespace(&corev1.Namespace{ObjectMeta: labelled("", "bank", v1alpha1.LabelTenant, "rome", v1alpha1.LabelHomeNamespace, "bank")})
		if c, known := next.client(at); !known || len(c.Namespaces) != 1 || c.Namespaces["shop"] != "shop" {
			t.Errorf("by what was noted it is %+v, %t", c, known)
		}
		next.noted.Store(nil)
		if c, known := next.client(at); known {
			t.Errorf("its namespace is not there any more, and it is %+v", c)
		}

		for i := range 20000 {
			first.index.SetNamespace(space(fmt.Sprintf("shop-%d", i)))
		}
		pause(ctx, 2*notePace)
		synctest.Wait()
		if k.held[namesNote] != nil {
			t.Error("what is too large is noted, or what was before is left")
		}
		cancel()
		<-ended
	})
	bad, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	none := &names{log: logr.Discard()}
	if none.read("milan-1", bad); none.noted.Load() != nil {
		t.Error("what is no note is one")
	}
}
