package shadow

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

const (
	// maskedAddress and maskedNode stand for what is not told.
	maskedAddress, maskedNode = "[address]", "[node]"
	// noRoom is what is told of a scheduler's arithmetic.
	noRoom = "no node there has room for it or fits it"
	// maxLacking is how many resources are named that lack.
	maxLacking = 5
)

var (
	ipv4     = regexp.MustCompile(`(?:\d{1,3}\.){3}\d{1,3}`)
	ipv6     = regexp.MustCompile(`[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}`)
	nodeWord = regexp.MustCompile(`[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?`)
	lacking  = regexp.MustCompile(`Insufficient [a-z0-9](?:[-a-z0-9._/]*[a-z0-9])?`)
)

// Telling is what a provider tells of a text that its kubelets, its scheduler or whoever
// attaches volumes give with a reason: without addresses, without names of nodes, and where
// it says how full nodes are, only what is missing for the pod.
func Telling(reason, text string, isNode func(name string) bool) string {
	if reason == "FailedScheduling" || strings.HasPrefix(reason, "OutOf") && text != "" {
		return unfit(text)
	}
	return mask(text, isNode)
}

// unfit is what concerns the pod in the words of who found no room for it: counts, taints
// and labels of nodes are the provider's.
func unfit(text string) string {
	var lack []string
	for _, found := range lacking.FindAllString(text, -1) {
		lack = append(lack, strings.TrimPrefix(found, "Insufficient "))
	}
	if strings.Contains(text, "Too many pods") {
		lack = append(lack, "pods")
	}
	slices.Sort(lack)
	lack = slices.Compact(lack)
	said := noRoom
	if len(lack) > 0 {
		said += "; there is not enough " + strings.Join(lack[:min(len(lack), maxLacking)], ", ")
	}
	if strings.Contains(strings.ToLower(text), "persistentvolumeclaim") {
		said += "; a volume claim of it is missing or not bound"
	}
	return said
}

// mask hides addresses and names of nodes, also where a name begins with one. It rather
// hides too much: a version of four numbers looks like an address.
func mask(text string, isNode func(name string) bool) string {
	text = nodeWord.ReplaceAllStringFunc(text, func(word string) string {
		first, _, dotted := strings.Cut(word, ".")
		if isNode(word) || dotted && isNode(first) {
			return maskedNode
		}
		return word
	})
	text = ipv4.ReplaceAllString(text, maskedAddress)
	return ipv6.ReplaceAllStringFunc(text, func(word string) string {
		bare := strings.TrimSuffix(word, ":") // of "fd00::1: refused"
		for _, try := range []string{word, bare} {
			if _, err := netip.ParseAddr(try); err == nil && len(try) > len("::") {
				return maskedAddress + word[len(try):]
			}
		}
		return word
	})
}
