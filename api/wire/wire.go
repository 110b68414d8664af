// Package wire is what programs of a cluster's owner and Pelago say to each other: the
// services in the .proto files beside it, what is generated of them, and how the words
// of such a program are read. It connects to nothing.
package wire

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of an answer of a ResourceReader.
const (
	// AnswerLimit is how long an answer may take.
	AnswerLimit = time.Second
	// MaxAnswerBytes is how large a message may be.
	MaxAnswerBytes = 64 << 10
	// MaxResources is how many resources an answer may name.
	MaxResources = 64
	// maxName bounds the name of a resource, prefix and all.
	maxName = 253 + 1 + 63
	// maxAmount and, of cpu, maxCPU are more than any cluster has.
	maxAmount = int64(1) << 60
	maxCPU    = int64(1) << 50
)

// Errors of calls to which the program has said nothing, and of which it may not have
// heard.
var (
	ErrUnreached = errors.New("it cannot be reached")
	ErrLate      = errors.New("it does not answer in time")
)

// ErrNonsense is what the errors of Amounts wrap.
var ErrNonsense = errors.New("the answer is nonsense")

// plain is how quantities are written that are safe to parse: the parser takes
// minutes and gigabytes for an exponent like e999999999, which it would accept.
var plain = regexp.MustCompile(`^[+-]?([0-9]{1,19}(\.[0-9]{0,9})?|\.[0-9]{1,9})([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`)

// name is how resources are called: cpu, hugepages-2Mi, example.com/gpu.
var name = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

// Quantity reads a quantity that a stranger wrote, without the risks of the general
// parser.
func Quantity(text string) (resource.Quantity, error) {
	if !plain.MatchString(text) {
		return resource.Quantity{}, errors.New("not a quantity like 4, 250m or 8Gi")
	}
	return resource.ParseQuantity(text)
}

// Amounts reads the resources of an answer. One mistake makes all of it nonsense: who
// errs in one amount errs in others. The error names the first resource that is wrong,
// in the order of the alphabet, and wraps ErrNonsense.
func Amounts(resources map[string]string) (map[string]resource.Quantity, error) {
	if n := len(resources); n > MaxResources {
		return nil, fmt.Errorf("%w: it names %d resources, at most %d", ErrNonsense, n, MaxResources)
	}
	read := make(map[string]resource.Quantity, len(resources))
	for _, called := range slices.Sorted(maps.Keys(resources)) {
		if len(called) > maxName || !name.MatchString(called) {
			return nil, fmt.Errorf("%w: %.80q is not the name of a resource", ErrNonsense, called)
		}
		q, err := Quantity(resources[called])
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %s is %.40q, %w", ErrNonsense, called, resources[called], err)
		case q.Sign() < 0:
			return nil, fmt.Errorf("%w: %s is below zero", ErrNonsense, called)
		case q.CmpInt64(maxAmount) >= 0, called == "cpu" && q.CmpInt64(maxCPU) >= 0:
			return nil, fmt.Errorf("%w: %s is more than any cluster has", ErrNonsense, called)
		}
		read[called] = q
	}
	return read, nil
}
