package fleet

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// live is how much more is on the heap when made is there than before.
func live(t testing.TB, made func() any) int {
	t.Helper()
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	kept := made()
	after := heap()
	runtime.KeepAlive(kept)
	return after - before
}

// TestCost holds that no JSON takes more on the heap than it is said to cost before it is
// decoded, and to weigh after.
func TestCost(t *testing.T) {
	var wide []string
	for i := range 100_000 {
		wide = append(wide, fmt.Sprintf(`"%d":0`, i))
	}
	nine := "{" + strings.Join(wide[:9], ",") + "},"
	list := func(item string, n int) string { return `{"a":[` + strings.Repeat(item, n) + `0]}` }
	for reason, text := range map[string]string{
		"empty maps":         list("{},", 100_000),
		"maps of one":        list(`{"":0},`, 100_000),
		"maps of nine":       list(nine, 20_000),
		"a wide map":         "{" + strings.Join(wide, ",") + "}",
		"empty lists":        list("[],", 100_000),
		"lists of one":       list("[0],", 100_000),
		"lists of five":      list("[0,0,0,0,0],", 50_000),
		"numbers":            list("1234567,", 100_000),
		"numbers with dots":  list("1.5,", 100_000),
		"nothing":            list("null,", 100_000),
		"short strings":      list(`"a",`, 100_000),
		"strings":            list(`"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",`, 100_000),
		"one string":         list(`"`+strings.Repeat("a", 1<<20)+`",`, 1),
		"what is no letter":  list(`"`+strings.Repeat("\xff", 1<<20)+`",`, 1),
		"what is escaped":    list(`"`+strings.Repeat(`\"`, 1<<20)+`",`, 1),
		"brackets in quotes": list(`"{[\\",`, 100_000),
	} {
		var value map[string]any
		got := live(t, func() any {
			if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
				t.Fatalf("%s: %v", reason, err)
			}
			return value
		})
		said, heavy := cost([]byte(text)), weigh(value)
		t.Logf("%-20s %8d long, %9d live, %9d said (%.2f), %9d weighed (%.2f)", reason, len(text), got, said, float64(said)/float64(got), heavy, float64(heavy)/float64(got))
		if got -= got/50 + 4096; said < got || heavy < got { // others use the heap as well
			t.Errorf("%s: %d bytes are live, %d were said and %d weighed", reason, got, said, heavy)
		}
	}
}
