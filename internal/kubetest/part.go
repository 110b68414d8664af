package kubetest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
)

// EnvPart names the variable that has tests try a part of all of what they try: 2/3 is
// the second of three. The parts together are the whole, each of it once.
const EnvPart = "PELAGO_TEST_PART"

// Part is the part of them that is to be tried, all where PELAGO_TEST_PART is empty.
func Part[T any](t testing.TB, all []T) []T {
	t.Helper()
	chosen, err := part(all, os.Getenv(EnvPart))
	if err != nil {
		t.Fatalf("%s: %v", EnvPart, err)
	}
	return chosen
}

// part is every so-manieth, as neighbours are alike and take as long.
func part[T any](all []T, text string) (chosen []T, err error) {
	if text == "" {
		return all, nil
	}
	first, second, _ := strings.Cut(text, "/")
	number, err1 := strconv.Atoi(first)
	of, err2 := strconv.Atoi(second)
	if err1 != nil || err2 != nil || number < 1 || of < number || of > len(all) {
		return nil, fmt.Errorf("%q is no part of %d; say NUMBER/PARTS, as 2/3", text, len(all))
	}
	for i := number - 1; i < len(all); i += of {
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
