package fleet

import "math/bits"

// What JSON takes in memory once it is decoded, in bytes and rather more than less: an empty
// map or list takes many times its text, so a peer must not decide by the length of its
// answers how much memory they take. TestCost compares it with the heap.
const (
	costMap    = 336 // its header, and the first group of eight entries
	costList   = 64  // its header, and that it is a value
	costNext   = 80  // one more entry of a map or a list, and what is left over as they grow
	costString = 40  // its header, that it is a value, and the rest of the last word
	costOdd    = 2   // more than itself: a byte that is no letter may become U+FFFD
)

// Bounds on what one answer may cost. A usual ShadowPod costs 40 KB with all that is left out
// of it later.
const (
	maxCost     = 16 << 20 // of a page of a list, or an event
	maxCallCost = 4 << 20  // of a call, as many of them may be under way
	smallCost   = 256 << 10
)

// costOf has what each byte outside of strings costs, but for itself.
var costOf = [256]int{'{': costMap, '[': costList, ',': costNext, '"': costString}

// scan counts what a text costs while it comes in.
type scan struct {
	sum              int
	begun, binary    bool
	quoted, escaping bool
}

// add counts more of the text.
func (s *scan) add(text []byte) {
	if !s.begun && len(text) > 0 {
		s.begun, s.binary = true, text[0] == protobufMark[0]
	}
	if s.binary { // two bytes are an empty message
		s.sum += costMap / 2 * len(text)
		return
	}
	i, odd := 0, 0
	s.sum += len(text)
	for i < len(text) {
		if !s.quoted {
			for i < len(text) && !s.quoted {
				c := text[i]
				s.sum += costOf[c]
				s.quoted = c == '"'
				i++
			}
			continue
		}
		if s.escaping {
			s.escaping = false
			i++
			continue
		}
		for i < len(text) && text[i] != '"' && text[i] != '\\' {
			odd += int(text[i] >> 7)
			i++
		}
		if i < len(text) {
			s.quoted, s.escaping = text[i] != '"', text[i] == '\\'
			i++
		}
	}
	s.sum += odd * costOdd
}

// cost is what a whole text costs.
func cost(text []byte) int {
	var s scan
	s.add(text)
	return s.sum
}

// weigh is how many bytes of memory a decoded JSON value takes, about, without its place in
// the map or list that it is in.
func weigh(value any) int {
	switch v := value.(type) {
	case map[string]any:
		sum := 48
		switch n := len(v); {
		case n > 8: // grows by twice at seven eighths
			sum += 64 + 36*(1<<bits.Len(uint(n*8/7)))
		case n > 0:
			sum += 36 * 8
		}
		for key, item := range v {
			sum += weighText(key) + weigh(item)
		}
		return sum
	case []any:
		sum := 24 + 16*cap(v)
		for _, item := range v {
			sum += weigh(item)
		}
		return sum
	case string:
		return 16 + weighText(v)
	}
	return 16
}

// weighText is what a text takes: memory comes in steps of up to an eighth.
func weighText(text string) int {
	return min(len(text), 1)*16 + len(text) + min(len(text)/8, 4096)
}
