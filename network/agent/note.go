package agent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// note is what the next process has to know of a tunnel to go on with it while the API server
// does not answer. It has secrets, which nothing else than a Keeper gets to see.
type note struct {
	tunnel.Config
	PrivateKey, PresharedKey string // instead of those of Config, which do not let themselves be written
	Probe                    plan.Probe
}

// maxNote bounds a note, in bytes: 16 endpoints and some keys.
const maxNote = 1 << 16

// note has it kept what a tunnel is.
func (t *tunnels) note(key string, w wanted) error {
	text := func(s tunnel.Secret) string {
		if s.IsZero() {
			return ""
		}
		key := s.Reveal()
		return base64.StdEncoding.EncodeToString(key[:])
	}
	b, err := json.Marshal(note{Config: w.Config, PrivateKey: text(w.Config.PrivateKey), PresharedKey: text(w.Config.PresharedKey), Probe: w.probe})
	if err != nil {
		return fmt.Errorf("noting the tunnel of %s: %w", key, err)
	}
	if err := keepNote(t.keeper, key, b); err != nil {
		return fmt.Errorf("noting the tunnel of %s: %w", key, err)
	}
	return nil
}

// keepNote has a note held, instead of the one before.
func keepNote(k Keeper, name string, b []byte) error {
	fd, err := unix.MemfdCreate("note", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "note")
	defer func() { _ = file.Close() }()
	if _, err := file.Write(b); err != nil {
		return err
	}
	return k.Hold(holder.Note, name, file)
}

// read reads the notes that were left. What is none costs that tunnel.
func (t *tunnels) read(left map[string]*os.File) map[string]wanted {
	all := map[string]wanted{}
	for key, file := range left {
		w, err := readNote(key, file)
		_ = file.Close()
		if err != nil {
			t.log.Error(err, "reading what an earlier process has noted", "peering", key)
			continue
		}
		all[key] = w
	}
	return all
}

func readNote(key string, file io.ReaderAt) (wanted, error) {
	var n note
	b, err := io.ReadAll(io.NewSectionReader(file, 0, maxNote)) // others have read the file before
	if err == nil {
		err = json.Unmarshal(b, &n)
	}
	if err != nil {
		return wanted{}, errors.New("a note is not understood") // the cause would quote it
	}
	for _, s := range []struct {
		text string
		to   *tunnel.Secret
	}{{n.PrivateKey, &n.Config.PrivateKey}, {n.PresharedKey, &n.Config.PresharedKey}} {
		if s.text == "" {
			continue
		}
		if *s.to, err = tunnel.ParseSecret(s.text); err != nil {
			return wanted{}, err
		}
	}
	return wanted{Tunnel: plan.Tunnel{Peering: key, Config: n.Config}, probe: n.Probe}, nil
}

// lingerAfter is how long a process that has just begun waits for the cluster, before it goes on
// with what an earlier one has left. One that follows that at once does not wait where the other had
// no doubt: its Lease holds for longer than it takes to begin.
const lingerAfter = time.Second

// wait waits until all is known, and reports whether it is. Meanwhile it lingers.
func (a *Agent) wait(ctx context.Context) bool {
	known := make(chan bool, 1)
	go func() { known <- a.cluster.wait(ctx) }()
	for {
		timer := time.NewTimer(a.linger(ctx))
		select {
		case is := <-known:
			timer.Stop()
			return is
		case <-timer.C:
		}
	}
}

// linger goes on with the tunnels of an earlier process, in doubt, and returns when to do so
// again. All else that this one has left goes on by itself.
func (a *Agent) linger(ctx context.Context) time.Duration {
	if early := a.early(time.Now()); early > 0 {
		return early
	}
	if err := a.tunnels.linger(ctx, time.Now()); err != nil {
		a.options.Log.Error(err, "going on with what was left")
		return paceAgain
	}
	return doubtLook
}

// early is how long to wait yet before going on with what was left.
func (a *Agent) early(now time.Time) time.Duration {
	if a.options.Follows && a.tunnels.certain() {
		return 0
	}
	return lingerAfter - now.Sub(a.began)
}

// certain says that the earlier process had no doubt that its tunnels are this node's.
func (t *tunnels) certain() bool {
	for _, w := range t.left {
		if w.Config.Yield {
			return false
		}
	}
	return true
}

// linger goes on with the tunnels of which there is the namespace too: another one would be joined to nothing.
func (t *tunnels) linger(ctx context.Context, now time.Time) error {
	if len(t.left) == 0 {
		return nil
	}
	there, err := t.spaces.List()
	if err != nil {
		return err
	}
	left := maps.Clone(t.left)
	maps.DeleteFunc(left, func(key string, _ wanted) bool { return !slices.Contains(there, key) })
	t.mu.Lock()
	if !t.doubt.is {
		t.doubt = doubt{is: true}
		for key, w := range left { // as it was
			s := stance{tried: true}
			if w.Config.Passive {
				s.posture = passive
			}
			t.stances[key] = s
		}
	}
	t.mu.Unlock()
	want := t.hesitate(left, doubt{is: true}, now)
	_, err = t.open(want, false)
	return errors.Join(err, t.probe(ctx, want))
}
