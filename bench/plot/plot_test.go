package plot

import (
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestSVG(t *testing.T) {
	got := SVG(
		Chart{Title: "pods a second", Groups: []string{"100", "1000"}, Series: []Series{
			{"plain", []float64{128.25, 55.5}}, {"offloaded", []float64{101, 0}}, {"at 50 ms & more", []float64{0.75, 41}},
		}},
		Chart{Title: "nothing < measured", Groups: []string{"100"}},
	)
	for parser := xml.NewDecoder(strings.NewReader(got)); ; {
		if _, err := parser.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("what is drawn is no XML: %v\n%s", err, got)
		}
	}
	const golden = "testdata/bars.svg"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the picture differs from %s, which -update writes anew after you have looked at it (-want +got)\n%s", golden, diff)
	}
}

func TestSet(t *testing.T) {
	var got Chart
	got.Set("100", "plain", 1)
	got.Set("1000", "offloaded", 2)
	got.Set("100", "offloaded", 3)
	got.Set("1000", "offloaded", 4)
	want := Chart{Groups: []string{"100", "1000"}, Series: []Series{{"plain", []float64{1}}, {"offloaded", []float64{3, 4}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNiceStep(t *testing.T) {
	for step, want := range map[float64]float64{0: 1, 0.03: 0.05, 0.5: 0.5, 1: 1, 1.2: 2, 3: 5, 7: 10, 32: 50} {
		if got := niceStep(step); got != want {
			t.Errorf("a step of %g becomes %g, want %g", step, got, want)
		}
	}
}
