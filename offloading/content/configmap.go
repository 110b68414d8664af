package content

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configMapContent is what travels of a ConfigMap.
type configMapContent struct {
	Data       map[string]string `json:"data,omitempty"`
	BinaryData map[string][]byte `json:"binaryData,omitempty"`
	Immutable  bool              `json:"immutable,omitempty"`
}

// rootCA is the ConfigMap that every namespace has of its own cluster.
const rootCA = "kube-root-ca.crt"

var configMaps = form[*corev1.ConfigMap, configMapContent]{
	name: "ConfigMap", referred: true, plain: true, long: true, never: []string{rootCA},
	empty: func() *corev1.ConfigMap { return &corev1.ConfigMap{} },
	list:  func() client.ObjectList { return &corev1.ConfigMapList{} },
	pack: func(m *corev1.ConfigMap) (configMapContent, string) {
		return configMapContent{Data: m.Data, BinaryData: m.BinaryData, Immutable: m.Immutable != nil && *m.Immutable}, ""
	},
	check: func(c *configMapContent) string {
		var size sizer
		for key, value := range c.Data {
			size.add("data", key, len(value))
		}
		for key, value := range c.BinaryData {
			size.add("binaryData", key, len(value))
			if _, twice := c.Data[key]; twice && size.bad == "" {
				size.bad = "data and binaryData have a key in common"
			}
		}
		return size.wrong("ConfigMaps")
	},
	unpack: func(c *configMapContent, _ Rules, m *corev1.ConfigMap) string {
		m.Data, m.BinaryData = c.Data, c.BinaryData
		if c.Immutable {
			m.Immutable = &c.Immutable
		}
		return ""
	},
	put: func(next, want *corev1.ConfigMap) bool {
		frozen := next.Immutable != nil && *next.Immutable
		before := configMapContent{Data: next.Data, BinaryData: next.BinaryData, Immutable: frozen}
		next.Data, next.BinaryData, next.Immutable = want.Data, want.BinaryData, want.Immutable
		after := configMapContent{Data: want.Data, BinaryData: want.BinaryData, Immutable: want.Immutable != nil && *want.Immutable}
		return frozen && !same(before, after)
	},
}
