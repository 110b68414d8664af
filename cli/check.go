package cli

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var (
	uuidPattern  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	hashPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	tokenPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	hostPattern  = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)
)

const (
	// mostDigits bounds how an amount is written.
	mostDigits = 24
	// mostCPU and mostOfAny are what no provider believes to be there.
	mostCPU   = int64(1) << 50
	mostOfAny = int64(1) << 60
)

// checkURL wants SCHEME://HOST[:PORT] and nothing else.
func checkURL(text string, schemes ...string) error {
	wanted := fmt.Sprintf("%q is not of the form %s://HOST:PORT", text, strings.Join(schemes, " or "))
	u, err := url.Parse(text)
	switch {
	case err != nil, !slices.Contains(schemes, u.Scheme), u.Hostname() == "", !hostPattern.MatchString(u.Host):
		return fmt.Errorf("%s", wanted)
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return fmt.Errorf("%s", wanted)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("%s: the port is 1 to 65535", wanted)
		}
	}
	return nil
}

// checkAuthURL wants an address without a path.
func checkAuthURL(text string) error {
	if err := checkURL(text, "https"); err != nil {
		return err
	}
	if u, _ := url.Parse(text); u.Path != "" {
		return fmt.Errorf("%q is not of the form https://HOST:PORT", text)
	}
	return nil
}

// checkResource accepts the names of resources that a provider can have.
func checkResource(name string) error {
	switch {
	case slices.Contains([]string{"cpu", "memory", "pods", "ephemeral-storage"}, name):
		return nil
	case len(validation.IsQualifiedName(name)) == 0 && (strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) || strings.Contains(name, "/")):
		return nil
	}
	return fmt.Errorf("there is no resource %.80q; use cpu, memory, pods, ephemeral-storage, hugepages-SIZE or one with a domain like nvidia.com/gpu", name)
}

// checkAmount reads an amount of a resource as a request may have it.
func checkAmount(name, text string) (resource.Quantity, error) {
	quantity := resource.Quantity{}
	if len(text) <= mostDigits {
		var err error
		if quantity, err = resource.ParseQuantity(text); err != nil {
			quantity = resource.MustParse("-1")
		}
	}
	switch {
	case len(text) > mostDigits, quantity.Sign() < 0:
		return quantity, fmt.Errorf("%.40q is not an amount; write one like 4, 500m or 8Gi", text)
	case name == "cpu" && quantity.CmpInt64(mostCPU) >= 0, quantity.CmpInt64(mostOfAny) >= 0:
		return quantity, fmt.Errorf("%q is more than any cluster has; ask for less, or leave it out to ask for all that is free", text)
	case (name == "pods" || strings.Contains(name, "/")) && quantity.MilliValue()%1000 != 0:
		return quantity, fmt.Errorf("%q is not a whole number, as %s have to be", text, name)
	}
	return quantity, nil
}

// resources makes a ResourceList of the flags --cpu, --memory, --pods and --resource.
func resources(cpu, memory, pods string, others []string) (v1alpha1.ResourceList, error) {
	list := v1alpha1.ResourceList{}
	set := func(flag, name, amount string) error {
		if err := checkResource(name); err != nil {
			return usage("%s: %w", flag, err)
		}
		quantity, err := checkAmount(name, amount)
		if err != nil {
			return usage("%s %w", flag, err)
		}
		if _, twice := list[name]; twice {
			return usage("%s: %s is given twice", flag, name)
		}
		list[name] = quantity
		return nil
	}
	for _, one := range []struct{ flag, name, amount string }{{"--cpu", "cpu", cpu}, {"--memory", "memory", memory}, {"--pods", "pods", pods}} {
		if one.amount == "" {
			continue
		}
		if err := set(one.flag, one.name, one.amount); err != nil {
			return nil, err
		}
	}
	for _, text := range others {
		name, amount, found := strings.Cut(text, "=")
		if !found || name == "" {
			return nil, usage("--resource %q is not of the form NAME=AMOUNT, like nvidia.com/gpu=2", text)
		}
		if err := set("--resource", name, amount); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, nil
}
