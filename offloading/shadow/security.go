package shadow

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// privileged says whether the provider lets the pod do whatever a container can; only
// it knows, so a home pod is not held to it here.
func (w *walk) privileged() bool { return w.level == v1alpha1.PodSecurityPrivileged }

// unlessPrivileged is a bad for what the Pod Security Standard baseline does not allow.
func unlessPrivileged[T any](bad func(T) bool) rule {
	return rule{fate: refused, bad: when(func(w *walk, v T) bool { return !w.privileged() && bad(v) })}
}

func (r rule) because(why string) rule {
	r.why = why
	return r
}

// What baseline allows.
var (
	baselineCapabilities = []corev1.Capability{"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
		"NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
	baselineTypes   = []string{"container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
	baselineSysctls = []string{"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
		"net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.tcp_keepalive_time",
		"net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
)

var podSecurityRules = fields("PodSecurityContext",
	`SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot SupplementalGroups SupplementalGroupsPolicy FSGroup
	FSGroupChangePolicy SeccompProfile AppArmorProfile SELinuxChangePolicy`,
	map[string]rule{
		"Sysctls": unlessPrivileged(func(list []corev1.Sysctl) bool {
			return slices.ContainsFunc(list, func(s corev1.Sysctl) bool { return !slices.Contains(baselineSysctls, s.Name) })
		}).because("sysctls other than the safe ones need a tenant with podSecurity privileged; leave them out"),
	})

var securityRules = join(
	fields("SecurityContext",
		`Capabilities SELinuxOptions WindowsOptions RunAsUser RunAsGroup RunAsNonRoot ReadOnlyRootFilesystem
		AllowPrivilegeEscalation SeccompProfile AppArmorProfile`,
		map[string]rule{
			"Privileged": unlessPrivileged(func(p *bool) bool { return *p }).
				because("privileged containers need a tenant with podSecurity privileged; set it to false"),
			"ProcMount": unlessPrivileged(func(m *corev1.ProcMountType) bool { return *m != corev1.DefaultProcMount }).
				because("anything but Default needs a tenant with podSecurity privileged; set it to Default"),
		}),
	fields("Capabilities", "Drop", map[string]rule{
		"Add": unlessPrivileged(func(list []corev1.Capability) bool {
			return slices.ContainsFunc(list, func(c corev1.Capability) bool { return !slices.Contains(baselineCapabilities, c) })
		}).because("capabilities beyond the Pod Security Standard baseline need a tenant with podSecurity privileged; leave them out"),
	}),
	fields("SELinuxOptions", "Level", map[string]rule{
		"User": unlessPrivileged(func(string) bool { return true }).because("needs a tenant with podSecurity privileged; leave it out"),
		"Role": unlessPrivileged(func(string) bool { return true }).because("needs a tenant with podSecurity privileged; leave it out"),
		"Type": unlessPrivileged(func(t string) bool { return !slices.Contains(baselineTypes, t) }).
			because("types other than those of containers need a tenant with podSecurity privileged; leave it out"),
	}),
	fields("AppArmorProfile", "LocalhostProfile", map[string]rule{
		"Type": unlessPrivileged(func(t corev1.AppArmorProfileType) bool { return t == corev1.AppArmorProfileTypeUnconfined }).
			because("Unconfined needs a tenant with podSecurity privileged; use RuntimeDefault"),
	}),
	fields("SeccompProfile", "LocalhostProfile", map[string]rule{
		"Type": unlessPrivileged(func(t corev1.SeccompProfileType) bool { return t == corev1.SeccompProfileTypeUnconfined }).
			because("Unconfined needs a tenant with podSecurity privileged; use RuntimeDefault"),
	}),
	fields("Sysctl", "Name Value", nil),
	fields("WindowsSecurityContextOptions", "RunAsUserName", map[string]rule{
		"GMSACredentialSpecName": refuse("the provider's service accounts are its own; leave it out"),
		"GMSACredentialSpec":     refuse("the provider's service accounts are its own; leave it out"),
		"HostProcess": {fate: refused, why: "the provider's nodes are not shared; set it to false",
			bad: when(func(_ *walk, h *bool) bool { return *h })},
	}),
)
