package cli

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var (
	uuidPattern  = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	hashPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	tokenPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	hostPattern  = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)
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

// resources makes a ResourceList of the flags --cpu, --memory, --pods and --resource.
func resources(cpu, memory, pods string, others []string) (v1alpha1.ResourceList, error) {
	list := v1alpha1.ResourceList{}
	set := func(flag, name, amount string) error {
		quantity, err := resource.ParseQuantity(amount)
		if err != nil || quantity.Sign() < 0 {
			return usage("%s %q is not an amount; write one like 4, 500m or 8Gi", flag, amount)
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
