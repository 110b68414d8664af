package screen

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Width is how many columns a terminal has.
const Width = 80

// narrowest is the fewest characters a column is cut down to, if its heading is no wider,
// narrowestName those of the first one.
const (
	narrowest     = 8
	narrowestName = 20
)

// Cell is one field of a table.
type Cell struct {
	Text   string
	Colour Colour
}

// Row makes a row of uncoloured cells.
func Row(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	return cells
}

// Table writes a heading and rows in columns, without control characters. A table that is wider than
// width is cut, in its widest columns first, in the first one last: names are what people type again. A
// width of 0 cuts nothing.
func Table(w io.Writer, paint Paint, width int, heading []string, rows [][]Cell) error {
	all := [][]Cell{Row(heading...)}
	for _, row := range rows {
		cleaned := make([]Cell, len(row))
		for i, cell := range row {
			cleaned[i] = Cell{Text: line(cell.Text), Colour: cell.Colour}
		}
		all = append(all, cleaned)
	}
	widths := columnWidths(all, len(heading), width)
	var out strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			text := cut(cell.Text, widths[i])
			line.WriteString(paint.Text(cell.Colour, text))
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+2))
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

func columnWidths(rows [][]Cell, columns, limit int) []int {
	widths := make([]int, columns)
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell.Text))
		}
	}
	total := 2 * (columns - 1)
	for _, width := range widths {
		total += width
	}
	for ; limit > 0 && total > limit; total-- {
		widest := 0
		for i := 1; i < columns; i++ {
			least := max(narrowest, utf8.RuneCountInString(rows[0][i].Text))
			if widths[i] > least && (widest == 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest == 0 {
			if widths[0] <= narrowestName {
				break
			}
		}
		widths[widest]--
	}
	return widths
}

// cut shortens text to width characters, the last of them an ellipsis.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}
