package kubetest

import (
	"os"
	"testing"
)

// envAll set to 1 makes tests try all of what they try a sample of.
const envAll = "PELAGO_TEST_ALL"

const (
	// crashStride is how far apart the crash points of a sample are.
	crashStride = 3
	// fewestWrites and mostWrites bound what can be a whole way: a test that counts
	// fewer watches the wrong client, and one with more never ends.
	fewestWrites, mostWrites = 3, 100
)

// All says that tests try all of what they try a sample of otherwise.
func All() bool { return os.Getenv(envAll) == "1" }

// CrashPoints lets a process die at its writes in turn, until it lives to its end: at
// every third, or at every single one where PELAGO_TEST_ALL is 1.
//
// Each time, die lets the process make so many writes and no more, and then holds what
// must be true of those who come after. It returns how many writes the process came to,
// and whether it died.
func CrashPoints(t testing.TB, die func(after int) (writes int, died bool)) {
	t.Helper()
	stride := crashStride
	if All() {
		stride = 1
	}
	tried := 0
	for after := 0; after <= mostWrites; after += stride {
		writes, died := die(after)
		if died {
			tried++
			continue
		}
		t.Logf("died at %d of %d writes", tried, writes)
		if writes < fewestWrites {
			t.Errorf("there are %d writes only, want at least %d", writes, fewestWrites)
		}
		if tried*stride < writes {
			t.Errorf("died at %d of %d writes, want one in %d", tried, writes, stride)
		}
		return
	}
	t.Errorf("no end after %d writes", mostWrites)
}
