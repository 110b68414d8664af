package reach

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func three() []Pod {
	return []Pod{
		{Name: "home", Cluster: "rome", Home: true, Address: "10.42.0.5", Seen: map[string]string{"milan": "10.81.0.5"},
			ServiceAddress: "10.43.0.1", NodeAddress: "192.0.2.1", NodePort: 30001},
		{Name: "milan", Cluster: "milan", Address: "10.82.0.7", Seen: map[string]string{"turin": "10.84.0.7"}, ServiceAddress: "10.43.0.2", NodeAddress: "192.0.2.1", NodePort: 30002},
		{Name: "turin", Cluster: "turin", Address: "10.83.0.7", ServiceAddress: "10.43.0.3", NodeAddress: "192.0.2.1", NodePort: 30003},
	}
}

func TestPaths(t *testing.T) {
	paths := Paths("shop", "all", three())
	for _, c := range []struct{ from, to, by, host string }{
		{"home", "milan", "pod address", "10.82.0.7"},
		{"home", "milan", "service address", "10.43.0.2"},
		{"home", "turin", "node port", "192.0.2.1"},
		{"home", "milan", "pod name", "milan.all"},
		{"milan", "home", "pod address", "10.81.0.5"},
		{"turin", "home", "pod address", ""},
		{"milan", "home", "full name", "home.shop.svc.cluster.local"},
		{"turin", "home", "service name", "home"},
		{"turin", "milan", "pod address", "10.84.0.7"},
		{"milan", "turin", "pod address", ""},
		{"milan", "turin", "pod name", "turin.all"},
	} {
		found := false
		for _, p := range paths {
			if p.From == c.from && p.To == c.to && p.By == c.by {
				found = true
				if p.Host != c.host {
					t.Errorf("%s to %s by %s calls %q, want %q", c.from, c.to, c.by, p.Host, c.host)
				}
			}
		}
		if !found {
			t.Errorf("there is no way from %s to %s by %s", c.from, c.to, c.by)
		}
	}
	for _, p := range paths {
		if p.From != "home" && (p.By == "service address" || p.By == "node port") {
			t.Errorf("%s calls an address that means something at home only: %+v", p.From, p)
		}
		if p.From == p.To {
			t.Errorf("a pod calls itself: %+v", p)
		}
	}
	if want := 2*6 + 4*4; len(paths) != want {
		t.Errorf("%d ways, want %d", len(paths), want)
	}
}

func TestJudge(t *testing.T) {
	pods := three()
	way := Path{From: "home", To: "milan", By: "pod address", Host: "10.82.0.7", Port: Port, across: true}
	nowhere, local := way, way
	nowhere.Host, local.across = "", false
	for _, c := range []struct {
		reason      string
		path        Path
		answer      Answer
		ok          bool
		why, remedy string
	}{
		{"the right one answers", way, Answer{Server: "milan", Client: "10.42.0.5", Micros: 900}, true, "", ""},
		{"another one answers", way, Answer{Server: "home"}, false, "home answered", "pelago status milan"},
		{"there is no address", nowhere, Answer{}, false, "no such address", "pelago explain peering milan"},
		{"no name", way, Answer{Err: "no such host", At: AtName}, false, "does not resolve", "DNS"},
		{"no connection", way, Answer{Err: "no answer in 8s", At: AtConnect}, false, "no answer", "pelago status milan"},
		{"no connection within a cluster", local, Answer{Err: "refused", At: AtConnect}, false, "refused", "own network"},
		{"small packets only", way, Answer{Err: "no answer", At: AtTransfer}, false, "loses what is large", "MTU"},
	} {
		r := Judge(c.path, c.answer, pods)
		if r.OK != c.ok || !strings.Contains(r.Why, c.why) || !strings.Contains(r.Remedy, c.remedy) || c.ok != (r.Why == "") {
			t.Errorf("%s: %+v", c.reason, r)
		}
	}
}

// A server and calls to it, and to what is none.
func TestCall(t *testing.T) {
	good := httptest.NewServer(handler("milan"))
	defer good.Close()
	short := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }))
	defer short.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	_ = free.Close()
	answers := Call(t.Context(), []string{good.Listener.Addr().String(), short.Listener.Addr().String(), nobody, "nobody.invalid:80"})
	if a := answers[0]; a.Server != "milan" || a.Client != "127.0.0.1" || a.Err != "" || a.Micros <= 0 {
		t.Errorf("who answers is %+v", a)
	}
	for i, at := range []string{AtTransfer, AtConnect, AtName} {
		if a := answers[i+1]; a.At != at || a.Err == "" {
			t.Errorf("a call that goes wrong at %s says %+v", at, a)
		}
	}
	var text bytes.Buffer
	if err := Write(&text, answers); err != nil {
		t.Fatal(err)
	}
	if again, err := Read(text.String(), len(answers)); err != nil || again[0] != answers[0] {
		t.Errorf("read again: %+v, %v", again, err)
	}
	if _, err := Read(text.String(), 1); err == nil {
		t.Error("more answers than calls are taken")
	}
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, "127.0.0.1:0") }()
	cancel()
	select {
	case err := <-ended:
		if err != nil && !strings.Contains(err.Error(), "canceled") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	if err := Serve(t.Context(), "nowhere"); err == nil {
		t.Error("it listens nowhere")
	}
}
