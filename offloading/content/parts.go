package content

import (
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bytes are how many bytes of keys and values a Secret or ConfigMap has, which builds count that know no parts.
func Bytes(obj client.Object) (sum int) {
	switch o := obj.(type) {
	case *corev1.Secret:
		for key, value := range o.Data {
			sum += len(key) + len(value)
		}
	case *corev1.ConfigMap:
		for key, value := range o.Data {
			sum += len(key) + len(value)
		}
		for key, value := range o.BinaryData {
			sum += len(key) + len(value)
		}
	}
	return sum
}

// Split cuts a text into as few parts as can be, of at most MaxText bytes and about the same length, and no character
// in two. A text that is no longer than that is one part.
func Split(text string) []string {
	if len(text) <= MaxText {
		return []string{text}
	}
	const most = MaxText - utf8.UTFMax // a cut goes back to where a character begins
	count := (len(text) + most - 1) / most
	var parts []string
	begin := 0
	for i := 1; i < count; i++ {
		end := i * len(text) / count
		for end > begin && !utf8.RuneStart(text[end]) {
			end--
		}
		parts = append(parts, text[begin:end])
		begin = end
	}
	return append(parts, text[begin:])
}
