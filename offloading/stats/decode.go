package stats

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxItem bounds the text of one element: decoded, small things grow many times over.
const maxItem = 64 << 10

// errNoObject says that an answer is no JSON object.
var errNoObject = errors.New("the answer is no JSON object")

// elements reads a JSON object of at most so many bytes, and hands over the elements
// of one of its lists one by one, at most maxPods of them. Elements that are too large
// are left out. What else is in the object is read over.
func elements(body io.Reader, most int64, list string, each func(text []byte) error) error {
	limited := &io.LimitedReader{R: body, N: most + 1}
	d := json.NewDecoder(limited)
	err := walk(d, list, each)
	if limited.N <= 0 {
		return errTooMuch
	}
	return err
}

func walk(d *json.Decoder, list string, each func([]byte) error) error {
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errNoObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		if name != list {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return err
			}
			continue
		}
		if err := walkList(d, each); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func walkList(d *json.Decoder, each func([]byte) error) error {
	t, err := d.Token()
	switch {
	case err != nil:
		return err
	case t == nil: // null
		return nil
	case t != json.Delim('['):
		return errNoObject
	}
	for n := 0; d.More(); n++ {
		if n == maxPods {
			return fmt.Errorf("more than %d pods: %w", maxPods, errTooMuch)
		}
		var text json.RawMessage
		if err := d.Decode(&text); err != nil {
			return err
		}
		if len(text) > maxItem {
			continue
		}
		if err := each(text); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
