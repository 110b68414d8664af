// Package plot draws measurements as bars, for pages of results. It makes one picture
// in SVG of numbers that it is given, the same one always; it measures and writes
// nothing.
package plot

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Chart is one diagram: for each group a bar of each series.
type Chart struct {
	// Title says what is measured, and in what.
	Title  string
	Groups []string
	Series []Series
}

// Series is what belongs together over all groups.
type Series struct {
	Name string
	// Values are one for each group, in order. What is not above 0, or not there, was not
	// measured and has no bar.
	Values []float64
}

// Set notes a value; groups and series come in the order in which they are named first.
func (c *Chart) Set(group, series string, value float64) {
	g := slices.Index(c.Groups, group)
	if g < 0 {
		g = len(c.Groups)
		c.Groups = append(c.Groups, group)
	}
	s := slices.IndexFunc(c.Series, func(have Series) bool { return have.Name == series })
	if s < 0 {
		s = len(c.Series)
		c.Series = append(c.Series, Series{Name: series})
	}
	values := &c.Series[s].Values
	*values = append(*values, make([]float64, max(0, g+1-len(*values)))...)
	(*values)[g] = value
}

// Measures of a chart, in pixels.
const (
	width, height         = 420, 300
	left, right           = 56, 12
	top, bottom           = 58, 34
	plotWidth, plotHeight = width - left - right, height - top - bottom
	ticks                 = 4
)

// colours of the series, in order, told apart by colour-blind people as well.
var colours = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"}

// SVG draws charts side by side.
func SVG(charts ...Chart) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="#222">`+"\n", width*len(charts), height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width*len(charts), height)
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d,0)">`+"\n", i*width)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (c Chart) draw(b *strings.Builder) {
	fmt.Fprintf(b, `<text x="%d" y="18" font-size="13" font-weight="bold">%s</text>`+"\n", left, html.EscapeString(c.Title))
	step := niceStep(c.largest() / ticks)
	most := step * math.Max(1, math.Ceil(c.largest()/step))
	for v := 0.0; v <= most+step/2; v += step {
		y := below(v, most)
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", left, width-right, y, y)
		fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-6, y+4, number(v))
	}
	group := float64(plotWidth) / float64(max(1, len(c.Groups)))
	for g, name := range c.Groups {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", left+group*(float64(g)+0.5), height-bottom+18, html.EscapeString(name))
	}
	bar := group * 0.8 / float64(max(1, len(c.Series)))
	key := left
	for s, series := range c.Series {
		colour := colours[s%len(colours)]
		fmt.Fprintf(b, `<rect x="%d" y="30" width="10" height="10" fill="%s"/><text x="%d" y="39">%s</text>`+"\n", key, colour, key+14, html.EscapeString(series.Name))
		key += 26 + 6*len(series.Name)
		for g, v := range series.Values {
			if v > 0 {
				x, y := left+group*(float64(g)+0.1)+bar*float64(s), below(v, most)
				fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, bar, height-bottom-y, colour)
				fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="9">%s</text>`+"\n", x+bar/2, y-3, number(v))
			}
		}
	}
}

func (c Chart) largest() float64 {
	most := 0.0
	for _, s := range c.Series {
		for _, v := range s.Values {
			most = math.Max(most, v)
		}
	}
	return most
}

// below is how far down a value lies whose scale ends at most.
func below(v, most float64) float64 {
	return float64(height-bottom) - v/most*plotHeight
}

// niceStep is the smallest of 1, 2, 5, 10, … that is not less than a step.
func niceStep(step float64) float64 {
	if step <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(step)))
	for _, n := range []float64{1, 2, 5} {
		if step <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}

// number writes a value with three digits, or all that stand before the point.
func number(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
