package tunnel

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/network/netnstest"
)

const (
	// manyVariable makes the test binary the process that has many devices.
	manyVariable = "PELAGO_TUNNEL_TEST_MANY"
	many         = 20
	// A process with devices has at most as many MiB in memory, its part of what it shares, and
	// for each that is quiet as many more.
	mostAlone, mostEach = 40, 2
	// cyclesMost is how often the collector may begin by itself in a second.
	cyclesMost = 2
)

// chartAgent is the container of agents, as the chart makes it with nothing set.
func chartAgent(t *testing.T) (env []string, limit int64) {
	t.Helper()
	text, err := os.ReadFile("../../deploy/testdata/default.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var set appsv1.DaemonSet
		if err := yaml.Unmarshal([]byte(document), &set); err != nil || set.Kind != "DaemonSet" || set.Name != "pelago-agent" {
			continue
		}
		c := set.Spec.Template.Spec.Containers[0]
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				env = append(env, e.Name+"="+e.Value)
			}
		}
		return env, c.Resources.Limits.Memory().Value()
	}
	t.Fatal("the chart has no agents")
	return nil, 0
}

// TestMany has many quiet devices in one process, with the settings that agents have: the
// collector rests, although what they have waiting counts for it, and memory is that of what is
// used. The limit of the container is enough for 32 that are busy at once.
func TestMany(t *testing.T) {
	netnstest.Root(t)
	if os.Getenv(manyVariable) != "" {
		haveMany(t)
		return
	}
	env, limit := chartAgent(t)
	if least := int64(64+30*32) << 20; limit != 0 && limit < least {
		t.Errorf("the container has at most %d MiB, of which 32 busy tunnels may take %d", limit>>20, least>>20)
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestMany$", "-test.v")
	cmd.Env = append(append(os.Environ(), env...), manyVariable+"=1")
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("with %v: %v\n%s", env, err, text)
	}
	t.Logf("%s", text)
}

func haveMany(t *testing.T) {
	var all []*pings
	for range many / 2 {
		rome, milan, _, _ := pair(t, Options{Userspace: true})
		all = append(all, rome.ping(milan, 50*time.Millisecond)) // too little to count as traffic
	}
	var began time.Time
	var before runtime.MemStats
	memory := 0.0
	await(t, fmt.Sprintf("at most %d MiB and %d for each device", mostAlone, mostEach), patience, func() bool {
		if time.Since(began) < time.Second {
			return false
		}
		began, memory = time.Now(), resident(t)
		return racing() || memory <= mostAlone+mostEach*many
	})
	rest()
	await(t, "rest", patience, func() bool { return resting.Load() == 0 })
	runtime.ReadMemStats(&before)
	began = time.Now()
	await(t, "two quiet seconds", patience, func() bool {
		for _, p := range all {
			if !p.answeredAfter(began.Add(2 * time.Second)) {
				return false
			}
		}
		return true
	})
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	took := time.Since(began)
	cycles := int(after.NumGC-before.NumGC) - int(after.NumForcedGC-before.NumForcedGC)
	t.Logf("%d devices: %.1f MiB in memory, the heap counts %d MiB; %d cycles of the collector in %s", many, memory, after.HeapInuse>>20, cycles, took.Round(time.Millisecond))
	if most := int(cyclesMost * took.Seconds()); cycles > most {
		t.Errorf("the collector began %d times in %s, of at most %d", cycles, took, most)
	}
}

// resident is what this process has in memory, its part of what it shares, in MiB.
func resident(t *testing.T) float64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nPss:")
	var kib float64
	if _, err := fmt.Sscanf(after, "%f kB", &kib); err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}

// racing says that the race detector is at work, whose own memory is many times this.
func racing() bool {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return false
	}
	for _, s := range info.Settings {
		if s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
