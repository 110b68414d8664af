package namespace

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// reserved says whether a namespace is one that clusters or Pelago use themselves:
// never offloaded at home, never given to a tenant.
func reserved(name, system string) bool {
	return name == system || v1alpha1.ReservedNamespace(name)
}

// verdict is why a provider does not make a namespace; the zero value means it does.
type verdict struct{ reason, message string }

// remoteName is what a namespace of a tenant is called here, or why it cannot be.
func remoteName(home string, m v1alpha1.NamespaceMapping, tenant *v1alpha1.Tenant, system string) (string, verdict) {
	if len(validation.IsDNS1123Label(home)) > 0 {
		return "", verdict{v1alpha1.ReasonInvalid, "its name at home is not that of a namespace"}
	}
	if wrong := wrongOrigin(m); wrong != "" {
		return "", verdict{v1alpha1.ReasonInvalid, wrong}
	}
	name := expectedName(home, m, tenant.Name)
	switch m.Strategy {
	case v1alpha1.MappingDefaultName:
	case v1alpha1.MappingEnforceSameName, v1alpha1.MappingSelectedName:
		if !reserved(name, system) && !granted(tenant.Spec.NamespaceNames, name) {
			return "", verdict{v1alpha1.ReasonNameForbidden, fmt.Sprintf(
				"the provider does not let this tenant choose the name %.63q; ask its owner to add it to the tenant's spec.namespaceNames, or use the strategy DefaultName", name)}
		}
	default:
		return "", verdict{v1alpha1.ReasonInvalid, fmt.Sprintf("strategy %.40q is not known here; use DefaultName, EnforceSameName or SelectedName", m.Strategy)}
	}
	switch {
	case len(name) > validation.DNS1123LabelMaxLength:
		return "", verdict{v1alpha1.ReasonNameTooLong, fmt.Sprintf(
			"the name %s has %d characters, at most %d; use the strategy SelectedName with a shorter one", name, len(name), validation.DNS1123LabelMaxLength)}
	case len(validation.IsDNS1123Label(name)) > 0:
		return "", verdict{v1alpha1.ReasonInvalid, fmt.Sprintf("remoteName %.63q is not the name of a namespace", name)}
	case reserved(name, system):
		return "", verdict{v1alpha1.ReasonNameForbidden, fmt.Sprintf("the name %s is reserved at the provider; choose another", name)}
	}
	return name, verdict{}
}

// expectedName is the name that a strategy asks for, good or not.
func expectedName(home string, m v1alpha1.NamespaceMapping, tenant string) string {
	switch m.Strategy {
	case v1alpha1.MappingEnforceSameName:
		return home
	case v1alpha1.MappingSelectedName:
		return m.RemoteName
	}
	return v1alpha1.DefaultRemoteNamespace(home, tenant)
}

// granted says whether a list of names, or beginnings that end in *, has a name.
func granted(list []string, name string) bool {
	for _, pattern := range list {
		prefix, open := strings.CutSuffix(pattern, "*")
		if pattern == name || open && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
