package test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// streamStep is how many lines of a stream are checked before that is told, and streamPart how
	// many are sent at once.
	streamStep = 10000
	streamPart = 2500
	// silenceLimit is how long a stream may be silent: as long as it takes to see that a way is dead,
	// and what TCP waits after that before it tries again.
	silenceLimit = 10 * time.Second
)

// streamLine is whoLine with a stream beside it, of lines that are numbered, some 20 MiB a minute.
var streamLine = strings.Replace(whoLine, "chmod +x", fmt.Sprintf(`printf '#!/bin/sh\nprintf "Content-Type: text/plain\\n\\n"; n=1; while seq $n $((n+%[1]d)); do n=$((n+%[1]d+1)); sleep 0.05; done\n' > /www/cgi-bin/stream
chmod +x /www/cgi-bin/stream; chmod +x`, streamPart-1), 1)

// readLine reads such a stream over one connection, and says how far it has come and for how long
// nothing came at most since it said so before, in seconds; that a line is wrong, or that it ended.
const readLine = `trap 'exit 0' TERM; (wget -q -O - "http://$0/cgi-bin/stream" | awk '$1 != NR {print "wrong", NR, $1; exit}
NR %% 100 == 0 {getline at < "/proc/uptime"; close("/proc/uptime"); now = at+0; if (last && now-last > most) most = now-last; last = now}
NR %% %d == 0 {print "read", NR, most+0; most = 0; fflush()}'; echo ended) & while true; do sleep 1; done`

// read begins a pod at milan that reads data's stream, with one connection for the whole test, and
// returns when that began at the latest.
func (d *direct) read(t *testing.T) time.Time {
	t.Helper()
	pod := d.script("reader", "")
	pod.Spec.Containers[0].Command = []string{"sh", "-c", fmt.Sprintf(readLine, streamStep), join(d.address["milan"], webPort)}
	d.create(t, onto(pod, "milan"))
	var err error
	if d.reader, err = d.twin("milan", d.running(t, "reader")); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	d.reads(t)
	return begin
}

// said is what the reader said: how far it was, and how long nothing came before that. That it has
// read something else, or that the connection ended, is for good.
func (d *direct) said(t *testing.T, tail int) (lines []int, silent []time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := d.Logs(ctx, "milan", d.reader.Namespace, d.reader.Name, int64(tail))
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(out) {
		var n int
		var seconds float64
		if _, err := fmt.Sscanf(line, "read %d %g", &n, &seconds); err != nil {
			t.Fatalf("the connection broke: the reader says %q", out)
		}
		lines, silent = append(lines, n), append(silent, time.Duration(seconds*float64(time.Second)).Round(10*time.Millisecond))
	}
	return lines, silent, nil
}

// reads holds that the stream goes on from now.
func (d *direct) reads(t *testing.T) {
	t.Helper()
	first := 0
	d.eventually(t, networkLimit, "the stream goes on", func() error {
		lines, _, err := d.said(t, 1)
		if err != nil {
			return err
		}
		if len(lines) == 0 {
			return fmt.Errorf("nothing was read")
		}
		if first == 0 {
			first = lines[0]
		}
		if lines[0] < first+5*streamStep {
			return fmt.Errorf("%d lines were read, and %d at first", lines[0], first)
		}
		return nil
	})
}

// silence logs for how long nothing came at most since it was called before, and holds that this
// was not too long. It returns that.
func (d *direct) silence(t *testing.T, during string) (most time.Duration) {
	t.Helper()
	lines, silent, err := d.said(t, -1)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range lines {
		if n > d.mark {
			most = max(most, silent[i])
		}
	}
	if len(lines) == 0 || lines[len(lines)-1] == d.mark {
		return 0 // it was called a moment ago
	}
	d.mark = lines[len(lines)-1]
	t.Logf("direct: the stream was silent for %s at most while %s", most, during)
	if most > silenceLimit {
		t.Errorf("the stream was silent for %s while %s", most, during)
	}
	return most
}

var pingTime = regexp.MustCompile(`time=([0-9.]+) ms`)

// roundTrip is how long a packet of caller's takes to data and back, the median of some.
func (d *direct) roundTrip(t *testing.T) time.Duration {
	t.Helper()
	const packets = 50
	out, err := d.at(t, "milan", "exec", "-n", d.caller.Namespace, d.caller.Name, "--", "ping", "-c", strconv.Itoa(packets), "-i", "0.1", d.address["milan"])
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var took []float64
	for _, m := range pingTime.FindAllStringSubmatch(out, -1) {
		ms, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, ms)
	}
	if len(took) < packets*9/10 {
		t.Fatalf("%d of %d packets came back:\n%s", len(took), packets, out)
	}
	slices.Sort(took)
	return time.Duration(took[len(took)/2] * float64(time.Millisecond)).Round(100 * time.Microsecond)
}
