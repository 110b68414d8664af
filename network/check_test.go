package network

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func decoded(t testing.TB, text string) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := utiljson.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestReceivedSpec takes what a provider publishes as it is, or nothing of it.
func TestReceivedSpec(t *testing.T) {
	key := keyOf(1).Public().String()
	good := v1alpha1.NetworkConfigSpec{Pods: []string{"10.42.0.0/16", "not/carried"}, External: []string{"10.254.0.0/24"}, PublicKey: key,
		Endpoints: []string{"198.51.100.7:7100", "gw.example.org:7100", "[2001:db8::1]:7100"}, Port: 7100}
	text, _ := json.Marshal(map[string]any{"spec": good})
	obj := decoded(t, string(text))
	obj["spec"].(map[string]any)["fromLater"] = "x"
	got, err := receivedSpec(obj)
	if d := cmp.Diff(good, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	for reason, c := range map[string]struct{ spec, want string }{
		"too many ranges":              {`{"pods":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]}`, "spec.pods: there are 17"},
		"a range that is a book":       {`{"pods":["` + strings.Repeat("9", 44) + `"]}`, "spec.pods: one is no text"},
		"control characters":           {`{"pods":["10.0.0.0/8\u001b[31m"]}`, "spec.pods: one is no text"},
		"an endpoint that is loopback": {`{"endpoints":["127.0.0.1:53"]}`, `spec.endpoints: "127.0.0.1:53" is not HOST:PORT`},
		"an endpoint of link-local":    {`{"endpoints":["169.254.169.254:80"]}`, "is not HOST:PORT"},
		"an endpoint without a port":   {`{"endpoints":["198.51.100.7"]}`, "is not HOST:PORT"},
		"a key that is none":           {`{"publicKey":"AAAA"}`, "spec.publicKey: is no public key"},
		"a next key that is a number":  {`{"nextPublicKey":5}`, "spec.nextPublicKey: is no public key"},
		"a port that is none":          {`{"port":-1}`, "spec.port: -1"},
		"a port in a string":           {`{"port":"7100"}`, "spec.port: is no number"},
		"a list that is a map":         {`{"external":{}}`, "spec.external: is no list"},
	} {
		if _, err := receivedSpec(decoded(t, `{"spec":`+c.spec+`}`)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", reason, err, c.want)
		}
	}
	for _, text := range []string{`{}`, `{"spec":null}`, `{"spec":[]}`, `{"spec":"x"}`} {
		if got, err := receivedSpec(decoded(t, text)); err != nil || !cmp.Equal(got, v1alpha1.NetworkConfigSpec{}) {
			t.Errorf("%s: got %+v, %v", text, got, err)
		}
	}
}

// TestReceivedStatus leaves out what breaks a rule.
func TestReceivedStatus(t *testing.T) {
	own := &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	said := `{"metadata":{"generation":3},"status":{"observedGeneration":3,"nextPublicKey":"x","views":[
		{"real":"10.42.0.0/16","view":"10.81.0.0/16"},{"real":"10.42.0.1/16","view":"10.81.0.0/16"},{"real":5},7,{"real":"10.42.0.0/16","view":"x"}],
		"conditions":[{"type":"Other","status":"True"},5,{"type":"Ready","status":"Maybe","reason":"two words","message":"a\nb"},{"type":"Ready","status":"True"}]}}`
	s := receivedStatus(decoded(t, said), own, true)
	if d := cmp.Diff([]v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.81.0.0/16"}}, s.Views); d != "" {
		t.Errorf("views (-want +got):\n%s", d)
	}
	if len(s.Conditions) != 1 || s.Conditions[0].Status != "Unknown" || s.Conditions[0].Reason != v1alpha1.ReasonInvalid || s.Conditions[0].Message != "a b" {
		t.Errorf("conditions %+v", s.Conditions)
	}
	if s.ObservedGeneration != 7 || s.NextPublicKey != "" {
		t.Errorf("of generation %d, next key %q", s.ObservedGeneration, s.NextPublicKey)
	}
	if s := receivedStatus(decoded(t, said), own, false); s.ObservedGeneration != 0 {
		t.Errorf("what is said of an older spec counts for generation %d", s.ObservedGeneration)
	}
}

// FuzzReceived: whatever a provider shows, what is taken fits the definition of the kind.
func FuzzReceived(f *testing.F) {
	f.Add([]byte(`{"spec":{"pods":["10.0.0.0/8"],"port":7100,"endpoints":["a:1"]},"status":{"views":[{"real":"::/8","view":"::/8"}],"conditions":[{"type":"Ready"}]}}`))
	f.Add([]byte(`{"spec":{"pods":[[],{},null,1.5],"port":1e99},"status":{"views":{},"conditions":[null],"observedGeneration":"x"},"metadata":5}`))
	f.Add([]byte(`{"spec":{"pods":["10.0.0.0/8"],"port":7100,"consumerPaths":[{"name":"0123456789abcdef","prefixes":["10.60.0.0/16"],"publicKey":"x","endpoints":["a:1"],"until":"2026-11-25T06:00:00Z"}]}}`))
	f.Add([]byte(`{"spec":{"pods":["10.0.0.0/8"],"port":7100,"consumerPaths":[{"name":"0123456789abcdef"},{"name":"0123456789abcdef","prefixes":[5,{}],"until":"9999-12-31T23:59:60Z"},null]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var obj map[string]any
		if utiljson.Unmarshal(text, &obj) != nil {
			return
		}
		s, err := receivedSpec(obj)
		if err == nil && (len(s.Pods) > 16 || len(s.External) > 2 || len(s.Endpoints) > 16 || s.Port < 0 || s.Port > 65535) {
			t.Errorf("taken: %+v", s)
		}
		if len(s.ConsumerPaths) > v1alpha1.MaxNetworkPaths {
			t.Errorf("taken are %d paths", len(s.ConsumerPaths))
		}
		for _, p := range s.ConsumerPaths {
			if len(p.Name) != 16 || len(p.Prefixes) == 0 || len(p.Prefixes) > v1alpha1.MaxNetworkPathPrefixes || len(p.PublicKey) > 44 || p.Until.Year() > 9999 {
				t.Errorf("taken is the path %+v", p)
			}
			for _, e := range p.Endpoints {
				if host, port, err := net.SplitHostPort(e); err != nil || host == "" || port == "" {
					t.Errorf("taken is the endpoint %q", e)
				}
			}
		}
		st := receivedStatus(obj, &v1alpha1.NetworkConfig{}, true)
		if len(st.Views) > 18 || len(st.Conditions) > 1 || st.ObservedGeneration < 0 {
			t.Errorf("taken: %+v", st)
		}
		for _, c := range st.Conditions {
			if len(c.Message) > 4*maxText || !utf8.ValidString(c.Message) || c.Reason == "" {
				t.Errorf("condition %+v", c)
			}
		}
	})
}

// TestPatience holds that who asks at the beginning waits for the first look, and for no longer.
func TestPatience(t *testing.T) {
	n := New(Options{})
	answered := make(chan bool, 1)
	go func() { alive, known := n.Alive("milan"); answered <- alive && known }()
	select {
	case <-answered:
		t.Fatal("answered before anything was known")
	case <-time.After(20 * time.Millisecond):
	}
	n.tunnels.hear(func() []agent {
		return []agent{{alive: true, reports: map[string]v1alpha1.TunnelReport{"peering-milan": {Alive: true}}}}
	})
	n.learn(&picture{views: nothing.views, there: nothing.there, tunnels: map[string]bool{"peering-milan": true}})
	if !<-answered {
		t.Error("the answer is not what was learnt")
	}
	late := New(Options{})
	close(late.impatient)
	late.waiting.Do(func() {})
	if alive, known := late.Alive("milan"); alive || known {
		t.Error("who waited too long is told something")
	}
}
