package screen

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"
)

// pair opens both ends of a terminal.
func pair(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestProgressFits holds that the line never wraps, however narrow the terminal is and becomes.
func TestProgressFits(t *testing.T) {
	master, slave := pair(t)
	p := Start(slave, true, clocktesting.NewFakeClock(time.Unix(0, 0))) // of which the spinner does not turn
	cases := []struct {
		columns uint16
		want    int
	}{{40, 39}, {200, Width - 1}, {20, 19}, {2, 3}, {0, Width - 1}}
	for i, c := range cases {
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: c.columns}); err != nil {
			t.Fatal(err)
		}
		p.Step("%d %s", i, strings.Repeat("x", 2*Width))
		buffer := make([]byte, 4096)
		n, err := master.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		line := strings.TrimPrefix(string(buffer[:n]), "\r\x1b[K")
		if got := utf8.RuneCountInString(line); got != c.want || !strings.HasSuffix(line, "…") {
			t.Errorf("of %d columns %q takes %d, want %d", c.columns, line, got, c.want)
		}
	}
	p.Stop()
}
