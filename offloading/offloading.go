// Package offloading makes pods created here run there. Its rooms are: namespace, which
// agrees with providers on namespaces; admission, which gives pods of these namespaces
// their terms and keeps all others off virtual nodes; vnode, the virtual nodes; consumer,
// which carries home pods to providers as ShadowPods and their status home; provider,
// which runs them; shadow, the pure table of what becomes of each field of a pod on the
// way; kubelet, the API by which logs are read and commands run; and stats, what pods
// use. It never touches a pod of a namespace that is not offloaded.
package offloading
