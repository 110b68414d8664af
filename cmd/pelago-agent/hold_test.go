package main

import (
	"slices"
	"testing"
	"time"
)

func TestPauseAfter(t *testing.T) {
	var got []time.Duration
	for young := range 10 {
		got = append(got, pauseAfter(young))
	}
	const ms = time.Millisecond
	want := []time.Duration{0, 0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 5 * time.Second, 5 * time.Second}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if most := pauseAfter(1 << 30); most != 5*time.Second {
		t.Errorf("after very many: %s", most)
	}
}

func TestParse(t *testing.T) {
	t.Setenv(nodeVariable, "")
	for _, c := range []struct {
		reason string
		args   []string
		ok     bool
	}{
		{"a node has to be named", nil, false},
		{"by a flag", []string{"--node", "rome-1"}, true},
		{"but to say the version", []string{"--version"}, true},
		{"there are only flags", []string{"--node", "rome-1", "work"}, false},
	} {
		if s, err := parse(c.args); (err == nil) != c.ok || c.ok && !s.version && s.address != ":7078" {
			t.Errorf("%s: %+v, %v", c.reason, s, err)
		}
	}
	t.Setenv(nodeVariable, "milan-1")
	if s, err := parse(nil); err != nil || s.node != "milan-1" || s.namespace != "pelago-network" {
		t.Errorf("from the environment: %+v, %v", s, err)
	}
}
