package shadow

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// table holds the rule of every field that can be reached from PodSpec, by
// "Type.Field". What is below a dropped or refused field has no rules: nothing of it
// passes. A field without a rule is refused, and fails a test.
var table = join(
	podRules, schedulingRules, podSecurityRules,
	containerRules("Container"), containerRules("EphemeralContainerCommon"), containerPartRules,
	environmentRules, securityRules, volumeRules, volumeSourceRules,
)

func join(tables ...map[string]rule) map[string]rule {
	all := map[string]rule{}
	for _, t := range tables {
		maps.Copy(all, t)
	}
	return all
}

// fields makes rules for fields of one type: the given ones, and kept for those named. A + is at the
// end of those that not all API servers know that Pelago works with, and whose loss nobody would notice.
func fields(of, plain string, rules map[string]rule) map[string]rule {
	all := map[string]rule{}
	for name, r := range rules {
		all[of+"."+name] = r
	}
	for name := range strings.FieldsSeq(plain) {
		r := rule{fate: kept}
		if name, r.newer = strings.CutSuffix(name, "+"); r.newer {
			r.why = "a provider whose Kubernetes does not know it, or has it turned off, refuses the pod"
		}
		all[of+"."+name] = r
	}
	return all
}

func drop(why string) rule { return rule{fate: dropped, why: why} }

// noTokens is why a reference to some Secrets is refused.
const noTokens = "only a name that begins with pelago-token-, as these Secrets are Pelago's; any other goes with the pod: see docs/kinds/shadowobject.md"

// secretTravels is the rule of a reference to a Secret, whose name that function finds.
func secretTravels[T any](name func(T) string) rule {
	return rule{fate: refused, why: noTokens, bad: when(func(_ *walk, ref T) bool { return strings.HasPrefix(name(ref), v1alpha1.TokenSecretPrefix) })}
}

// travels is the rule of a reference to an object that goes with the pod.
var travels = rule{fate: kept, why: "the object goes with the pod: see docs/kinds/shadowobject.md"}

func refuse(why string) rule { return rule{fate: refused, why: why} }

var podRules = fields("PodSpec",
	`InitContainers Containers EphemeralContainers RestartPolicy ActiveDeadlineSeconds
	ShareProcessNamespace SecurityContext Hostname Subdomain
	EnableServiceLinks SetHostnameAsFQDN OS HostUsers Resources HostnameOverride+`,
	map[string]rule{
		"Volumes": {fate: translated, why: "tokens of service accounts, and the authority of home beside them, come from a Secret of the pod's own if the NamespaceOffloading has serviceAccountTokens: Allow; else without the automatic kube-api-access-* volume",
			change: on(translateVolumes)},
		"ImagePullSecrets": {fate: refused, why: noTokens, bad: when(func(_ *walk, all []corev1.LocalObjectReference) bool {
			return slices.ContainsFunc(all, func(r corev1.LocalObjectReference) bool { return strings.HasPrefix(r.Name, v1alpha1.TokenSecretPrefix) })
		})},
		"TerminationGracePeriodSeconds": {fate: translated, why: "at most ten minutes: the provider's nodes have to be drained, and its own pods may need the room",
			change: on(shortenGrace)},
		"DNSPolicy":   {fate: kept, why: "where the provider has home's names, ClusterFirst and ClusterFirstWithHostNet mean these: the pod has None, a name server that knows them, and home's search domains; where the provider lets it run at one of its own, that one gives it these anew"},
		"DNSConfig":   {fate: kept, why: "added to home's names, as at home: at most 3 name servers, 32 search domains"},
		"HostAliases": {fate: kept, why: "where the provider has a network with home, pods with tokens of home get one more, for home's API server"},
		"NodeSelector": {fate: translated, why: "only kubernetes.io/arch and kubernetes.io/os: the other labels are of home's nodes",
			change: on(keepPlatform)},
		"ServiceAccountName":           {fate: dropped, why: "always default: accounts are a cluster's own"},
		"DeprecatedServiceAccount":     drop("as serviceAccountName"),
		"AutomountServiceAccountToken": drop("always false: a token would open the provider's API"),
		"NodeName":                     {fate: dropped, why: "the virtual node at home; in a ShadowPod refused", shadow: "the provider's scheduler chooses the node; leave it out"},
		"SchedulerName":                {fate: dropped, why: "home's scheduler has done its part; in a ShadowPod refused", shadow: "the provider's scheduler is used; leave it out"},
		"HostNetwork":                  refuse("the provider's nodes are not shared; run without the host's network"),
		"HostPID":                      refuse("the provider's nodes are not shared; run without the host's processes"),
		"HostIPC":                      refuse("the provider's nodes are not shared; run without the host's IPC"),
		"Affinity":                     {fate: translated, why: "only anti-affinity between pods is left", change: on(keepAntiAffinity)},
		"Tolerations":                  drop("home's taints are not the provider's; none opens the provider's control plane"),
		"TopologySpreadConstraints":    {fate: translated, why: "whenUnsatisfiable becomes ScheduleAnyway: the pod is bound already", change: on(softenSpread)},
		"PriorityClassName": {fate: translated, why: "dropped, as priorities are a cluster's own; system-* is refused",
			change: on(dropPriorityClass)},
		"Priority":           drop("priorities are a cluster's own; the provider's default holds"),
		"PreemptionPolicy":   drop("as priority"),
		"RuntimeClassName":   {fate: translated, why: "pelago is dropped, any other is refused", change: on(dropRuntimeClass)},
		"Overhead":           drop("belongs to the runtime class at home"),
		"ReadinessGates":     drop("home judges them, with conditions that are written at home"),
		"SchedulingGates":    drop("home's scheduler has bound the pod, so they are open"),
		"SchedulingGroup":    drop("home's scheduler has judged the group"),
		"EvictionResponders": drop("who responds is at home, where the pod is evicted"),
		"ResourceClaims":     refuse("devices claimed at home are not at the provider; request them as extended resources"),
	})

var schedulingRules = join(
	fields("Affinity", "PodAntiAffinity", map[string]rule{
		"NodeAffinity": drop("home's scheduler has judged it, over home's nodes"),
		"PodAffinity":  drop("home's scheduler has judged it, over home's pods"),
	}),
	fields("PodAntiAffinity", "", map[string]rule{
		"RequiredDuringSchedulingIgnoredDuringExecution":  {fate: translated, why: "only terms that cover the pod's own namespace", change: on(ownTerms)},
		"PreferredDuringSchedulingIgnoredDuringExecution": {fate: translated, why: "only terms that cover the pod's own namespace", change: on(ownWeighted)},
	}),
	fields("WeightedPodAffinityTerm", "Weight PodAffinityTerm", nil),
	fields("PodAffinityTerm", "LabelSelector TopologyKey", map[string]rule{
		"Namespaces":        drop("home's names; a term that is kept means the own namespace"),
		"NamespaceSelector": drop("over home's labels; a term that is kept means the own namespace"),
		"MatchLabelKeys":    drop("home's API server has put them into labelSelector"),
		"MismatchLabelKeys": drop("home's API server has put them into labelSelector"),
	}),
	fields("TopologySpreadConstraint", "MaxSkew TopologyKey LabelSelector NodeAffinityPolicy NodeTaintsPolicy", map[string]rule{
		"WhenUnsatisfiable": {fate: translated, why: "always ScheduleAnyway", change: on(anyway)},
		"MinDomains":        drop("goes with DoNotSchedule only"),
		"MatchLabelKeys":    drop("their values are put into labelSelector"),
	}),
)

func containerRules(of string) map[string]rule {
	return fields(of,
		`Name Image Command Args WorkingDir Ports EnvFrom Resources ResizePolicy RestartPolicy+ RestartPolicyRules+
		LivenessProbe ReadinessProbe StartupProbe Lifecycle TerminationMessagePath TerminationMessagePolicy
		ImagePullPolicy SecurityContext Stdin StdinOnce TTY`,
		map[string]rule{
			"Env": {fate: translated, why: "home's values (name, namespace, UID, labels, annotations, node, service account, host IP) become text; status.podIP stays",
				change: on(showInEnv)},
			"VolumeMounts":  {fate: translated, why: "without those of the automatic kube-api-access-* volume", change: on(dropAccessMounts)},
			"VolumeDevices": refuse("volume claims do not travel yet; use an emptyDir"),
		})
}

var containerPartRules = join(
	fields("EphemeralContainer", "TargetContainerName", nil),
	fields("ContainerPort", "Name ContainerPort Protocol", map[string]rule{
		"HostPort": refuse("the ports of the provider's nodes are not shared; leave it out"),
		"HostIP":   drop("goes with hostPort only"),
	}),
	fields("ResourceRequirements", "Limits Requests", map[string]rule{
		"Claims": refuse("devices claimed at home are not at the provider; request them as extended resources"),
	}),
	fields("ContainerResizePolicy", "ResourceName RestartPolicy", nil),
	fields("ContainerRestartRule", "Action ExitCodes", nil),
	fields("ContainerRestartRuleOnExitCodes", "Operator Values", nil),
	fields("Probe", "InitialDelaySeconds TimeoutSeconds PeriodSeconds SuccessThreshold FailureThreshold TerminationGracePeriodSeconds", nil),
	fields("ProbeHandler", "Exec HTTPGet TCPSocket GRPC", nil),
	fields("Lifecycle", "PostStart PreStop StopSignal+", nil),
	fields("LifecycleHandler", "Exec HTTPGet TCPSocket Sleep", nil),
	fields("ExecAction", "Command", nil),
	fields("HTTPGetAction", "Path Port Scheme HTTPHeaders Protocol", map[string]rule{"Host": probeHost}),
	fields("TCPSocketAction", "Port", map[string]rule{"Host": probeHost}),
	fields("GRPCAction", "Port Service Mode", nil),
	fields("SleepAction", "Seconds", nil),
	fields("HTTPHeader", "Name Value", nil),
	fields("HostAlias", "IP Hostnames", nil),
	fields("LocalObjectReference", "Name", nil),
	fields("PodDNSConfig", "Nameservers Searches Options", nil),
	fields("PodDNSConfigOption", "Name Value", nil),
	fields("PodOS", "Name", nil),
)

var probeHost = rule{
	fate: refused, why: "probes and hooks go out from the provider's node, so only to the pod itself; leave the host out",
	bad: when(func(w *walk, host string) bool { return !w.privileged() && host != "" }),
}

var environmentRules = join(
	fields("EnvVar", "Name Value ValueFrom", nil),
	fields("EnvVarSource", "FieldRef ResourceFieldRef FileKeyRef+", map[string]rule{"ConfigMapKeyRef": travels,
		"SecretKeyRef": secretTravels(func(r *corev1.SecretKeySelector) string { return r.Name })}),
	fields("EnvFromSource", "Prefix", map[string]rule{"ConfigMapRef": travels,
		"SecretRef": secretTravels(func(r *corev1.SecretEnvSource) string { return r.Name })}),
	fields("ConfigMapEnvSource", "Optional", nil),
	fields("SecretEnvSource", "Optional", nil),
	fields("ConfigMapKeySelector", "Key Optional", nil),
	fields("SecretKeySelector", "Key Optional", nil),
	fields("FileKeySelector", "VolumeName Path Key Optional", nil),
	fields("ObjectFieldSelector", "APIVersion FieldPath", nil),
	fields("ResourceFieldSelector", "ContainerName Resource Divisor", nil),
)

var volumeRules = join(
	fields("Volume", "Name", nil),
	fields("VolumeMount", "Name ReadOnly RecursiveReadOnly MountPath SubPath SubPathExpr BindMountOptions+", map[string]rule{
		"MountPropagation": {fate: refused, why: "Bidirectional reaches the provider's node, and needs a tenant with podSecurity privileged; use None",
			bad: when(func(w *walk, m *corev1.MountPropagationMode) bool {
				return !w.privileged() && *m == corev1.MountPropagationBidirectional
			})},
	}),
	fields("EmptyDirVolumeSource", "Medium SizeLimit Mode+", nil),
	fields("ConfigMapVolumeSource", "Items DefaultMode DefaultUser+ Optional", nil),
	fields("SecretVolumeSource", "SecretName Items DefaultMode DefaultUser+ Optional", nil),
	fields("KeyToPath", "Key Path Mode User+", nil),
	fields("ImageVolumeSource", "Reference PullPolicy", nil),
	fields("DownwardAPIVolumeSource", "Items DefaultMode DefaultUser+", nil),
	fields("DownwardAPIProjection", "Items", nil),
	fields("DownwardAPIVolumeFile", "Path ResourceFieldRef Mode User+", map[string]rule{
		"FieldRef": {fate: translated, why: "reads an annotation pelago.dev/home-* that holds home's value", change: on(showInVolume)},
	}),
	fields("ProjectedVolumeSource", "Sources DefaultMode DefaultUser+", nil),
	fields("VolumeProjection", "DownwardAPI", map[string]rule{
		"Secret": {fate: refused, why: "only a name that begins with pelago-token- and is not that of the pod's own tokens; any other goes with the pod: see docs/kinds/shadowobject.md",
			bad: when(func(w *walk, s *corev1.SecretProjection) bool {
				return strings.HasPrefix(s.Name, v1alpha1.TokenSecretPrefix) && s.Name != v1alpha1.TokenSecret(w.uid)
			})},
		"ConfigMap":           travels,
		"ServiceAccountToken": refuse("tokens of home do not travel unless the NamespaceOffloading has serviceAccountTokens: Allow, and the provider's are not given; allow it, or leave it out"),
		"ClusterTrustBundle":  refuse("the provider's trust bundles are its own; put the certificates into the image"),
		"PodCertificate":      refuse("the provider's signers are its own; leave it out"),
	}),
	fields("ConfigMapProjection", "Items Optional", nil),
	fields("SecretProjection", "Items Optional", nil),
)

var volumeSourceRules = fields("VolumeSource", "EmptyDir DownwardAPI Projected Image+", map[string]rule{
	"Secret":                secretTravels(func(s *corev1.SecretVolumeSource) string { return s.SecretName }),
	"ConfigMap":             travels,
	"HostPath":              refuse("the provider's nodes are not shared; use an emptyDir"),
	"PersistentVolumeClaim": refuse("volume claims do not travel yet, and home keeps such pods; use an emptyDir"),
	"Ephemeral":             refuse("volume claims do not travel yet, and home keeps such pods; use an emptyDir"),
	"CSI":                   refuse("drivers are a cluster's own; use an emptyDir"),
	"NFS":                   foreignVolume, "ISCSI": foreignVolume, "FC": foreignVolume,
	"GCEPersistentDisk": foreignVolume, "AWSElasticBlockStore": foreignVolume, "AzureDisk": foreignVolume, "AzureFile": foreignVolume,
	"GitRepo": foreignVolume, "Glusterfs": foreignVolume, "RBD": foreignVolume, "FlexVolume": foreignVolume, "Cinder": foreignVolume,
	"CephFS": foreignVolume, "Flocker": foreignVolume, "VsphereVolume": foreignVolume, "Quobyte": foreignVolume,
	"PhotonPersistentDisk": foreignVolume, "PortworxVolume": foreignVolume, "ScaleIO": foreignVolume, "StorageOS": foreignVolume,
})

var foreignVolume = refuse("storage that the provider's nodes would reach for the pod; use an emptyDir")
