package law

import (
	"fmt"
	"strings"
)

// Limiters finds files that set up controllers without a back-off of their own. That of controller-runtime grows to
// a quarter of an hour, for which nothing is seen of what was mended.
func Limiters(tree Tree) []string {
	var found []string
	for _, p := range tree.Packages {
		for _, file := range p.Files {
			text := tree.Texts[file.Path]
			all, limited := strings.Count(text, "ctrl.NewControllerManagedBy("), strings.Count(text, "RateLimiter: ")
			if p.Module == productPath(tree) && !file.Test && p.Dir != "test/law" && limited < all {
				found = append(found, fmt.Sprintf("%s: %d of %d controllers have a RateLimiter of their own; give each throttle.NewLimiter()", file.Path, limited, all))
			}
		}
	}
	return found
}
