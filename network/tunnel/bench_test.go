package tunnel

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// bare is the library wired as its own program does it, in the namespace of a host:
// what a device of ours is compared with.
func (s *side) bare(t testing.TB, peer *side) *device.Device {
	t.Helper()
	// Up first: the library would else close its socket, and open it again elsewhere.
	file, err := openTUN(s.host, deviceName)
	if err == nil {
		_, err = ready(s.host, deviceName, 1420)
	}
	fd := -1
	if err == nil {
		fd, err = copyOf(file)
	}
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	var d *device.Device
	if err == nil {
		err = netns.In(s.host, func() error {
			native, err := tun.CreateTUNFromFile(os.NewFile(uintptr(fd), deviceName), 1420)
			if err != nil {
				return err
			}
			d = device.NewDevice(native, conn.NewStdNetBind(), device.NewLogger(device.LogLevelSilent, ""))
			private, public := s.key.Reveal(), peer.key.Public()
			err = d.IpcSet(fmt.Sprintf("private_key=%x\nlisten_port=%d\npublic_key=%x\nendpoint=%s\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0\n",
				private, port, [32]byte(public), peer.endpoint()))
			if err != nil {
				return err
			}
			return d.Up()
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close(); _ = file.Close() })
	// Its inside is in the host, where transfer has to begin.
	s.gateway = s.host
	s.number()
	return d
}

// BenchmarkThroughput compares a pair of our devices with a pair of bare ones by TCP, in
// turn in one run, and reports both in Gbit/s and the ratio of medians, and what the sockets of ours dropped.
func BenchmarkThroughput(b *testing.B) {
	netnstest.Root(b)
	const size = 64 << 20
	rome, milan, romes, milans := pair(b, Options{Userspace: true})
	bareRome, bareMilan := newSides(b)
	bareRome.bare(b, bareMilan)
	bareMilan.bare(b, bareRome)
	rate := func(took time.Duration) float64 { return size * 8 / took.Seconds() / 1e9 }
	transfer(b, bareRome, bareMilan, bareMilan.inside, size/4)
	transfer(b, rome, milan, milan.inside, size/4)
	var ours, bares []float64
	pairs := 0
	for b.Loop() {
		for range 7 { // the one that begins changes
			if pairs%2 == 0 {
				bares = append(bares, rate(transfer(b, bareRome, bareMilan, bareMilan.inside, size)))
			}
			ours = append(ours, rate(transfer(b, rome, milan, milan.inside, size)))
			if pairs%2 == 1 {
				bares = append(bares, rate(transfer(b, bareRome, bareMilan, bareMilan.inside, size)))
			}
			pairs++
		}
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(ours), "Gbit/s-ours")
	b.ReportMetric(median(bares), "Gbit/s-bare")
	b.ReportMetric(median(ours)/median(bares), "ours/bare")
	b.ReportMetric(float64(rome.stats(romes).Dropped+milan.stats(milans).Dropped), "dropped")
	b.Logf("%d pairs: ours %.2f, bare %.2f", len(ours), ours, bares)
}

// BenchmarkSharing reports what TCP through one tunnel of a node carries while another one is asked something every 5 ms,
// where the two share, of what it carries where they do not, in turn in one run; and for which part of the time it rests. All ends
// but those that share and TCP's are in the same process, on the same processors.
func BenchmarkSharing(b *testing.B) {
	netnstest.Root(b)
	const size = 64 << 20
	s := NewSharing()
	shared, sharedTo, device := sharing(b, s)
	other, otherTo, _ := sharing(b, s)
	alone, aloneTo, _ := sharing(b, nil)
	p := other.ping(otherTo, 5*time.Millisecond)
	defer p.end()
	rate := func(took time.Duration) float64 { return size * 8 / took.Seconds() / 1e9 }
	var shares, alones []float64
	var rested, took time.Duration
	for b.Loop() {
		for range 7 {
			was := sharedTo.stats(device).Rested
			each := transfer(b, shared, sharedTo, sharedTo.inside, size)
			rested, took = rested+sharedTo.stats(device).Rested-was, took+each
			shares = append(shares, rate(each))
			alones = append(alones, rate(transfer(b, alone, aloneTo, aloneTo.inside, size)))
		}
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(shares), "Gbit/s-shared")
	b.ReportMetric(median(alones), "Gbit/s-alone")
	b.ReportMetric(median(shares)/median(alones), "shared/alone")
	b.ReportMetric(rested.Seconds()/took.Seconds(), "rested")
}

// BenchmarkMemory reports what a device that carried traffic adds to this process.
func BenchmarkMemory(b *testing.B) {
	netnstest.Root(b)
	resident := func() float64 {
		text, err := os.ReadFile("/proc/self/statm")
		var total, pages int
		if err == nil {
			_, err = fmt.Sscan(string(text), &total, &pages)
		}
		if err != nil {
			b.Fatal(err)
		}
		return float64(pages*os.Getpagesize()) / (1 << 20)
	}
	const pairs = 5
	before := resident()
	each := func() float64 { return (resident() - before) / (2 * pairs) }
	var idle, busy, after float64
	for b.Loop() {
		var sides [pairs][2]*side
		for i := range sides {
			sides[i][0], sides[i][1], _, _ = pair(b, Options{Userspace: true})
		}
		idle = each()
		for _, s := range sides {
			transfer(b, s[0], s[1], s[1].inside, 16<<20)
		}
		busy = each()
		debug.FreeOSMemory()
		after = each()
	}
	b.ReportMetric(idle, "MiB/device-idle")
	b.ReportMetric(busy, "MiB/device-busy")
	b.ReportMetric(after, "MiB/device-after")
}
