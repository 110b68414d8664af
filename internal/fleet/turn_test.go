package fleet

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wide is an event of a megabyte.
func wide() string {
	return strings.Replace(event("ADDED", "ns", "a", "2"), `"metadata":{`, `"spec":"`+strings.Repeat("x", 1<<20)+`","metadata":{`, 1)
}

// TestTurnEnds holds that a watch that waits for others, whatever has come meanwhile, keeps
// no one of the same peer out.
func TestTurnEnds(t *testing.T) {
	s, m, told := standing()
	s.large = make(gate, 1)
	s.lag = func(*mirror) time.Duration {
		if len(s.large) > 0 {
			t.Fatal("it waits inside the gate")
		}
		return 0
	}
	text := wide() + strings.Repeat(event("MODIFIED", "ns", "b", "3"), 1000) + wide()
	if err := s.events(t.Context(), strings.NewReader(text), m); !quietEnd(err) || len(*told) != 1002 {
		t.Errorf("%d events, %v", len(*told), err)
	}
}

// TestTurnIsBounded holds that a watch with half an event in it ends, and others go on.
func TestTurnIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, _ := standing()
		s.large = make(gate, 1)
		watched := func(text string) (*io.PipeWriter, chan error) {
			r, w := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- s.events(t.Context(), r, m) }()
			go io.WriteString(w, text)
			synctest.Wait()
			return w, ended
		}
		began := time.Now()
		_, half := watched(wide()[:2*smallText])
		still, whole := watched(wide() + wide()[:smallText/2])
		if err := <-half; !errors.Is(err, errNoAnswer) || time.Since(began) != callTimeout {
			t.Errorf("half an event ends after %s: %v", time.Since(began), err)
		}
		<-time.After(10 * callTimeout) // of the clock of this test
		if m.get("a") == nil || len(s.large) > 0 || len(whole) > 0 {
			t.Errorf("the other watch has %d objects, %d are inside", len(m.all()), len(s.large))
		}
		still.Close()
		<-whole
	})
}
