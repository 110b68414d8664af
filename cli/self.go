package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// settings reads the settings of the cluster as they were installed. Unknown fields are
// left alone: the cluster may run another version.
func (c *Cluster) settings(ctx context.Context) (home.Config, error) {
	var config home.Config
	var stored corev1.ConfigMap
	if err := c.Client.Get(ctx, inSystem(v1alpha1.ConfigName), &stored); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return config, fmt.Errorf("there is no Pelago in the cluster at %s; run: pelago install", c.Server)
		}
		return config, describe(fmt.Errorf("reading the settings: %w", err), c)
	}
	if err := yaml.Unmarshal([]byte(stored.Data[home.ConfigKey]), &config); err != nil {
		return config, fmt.Errorf("reading the settings in ConfigMap %s/%s: %w; correct them, or run pelago install again", stored.Namespace, stored.Name, err)
	}
	return config, nil
}

// id reads the cluster's id, which pelago-manager makes when it starts for the first time;
// it is empty until then.
func (c *Cluster) id(ctx context.Context) (string, error) {
	var stored corev1.ConfigMap
	if err := c.Client.Get(ctx, inSystem(v1alpha1.ClusterIDName), &stored); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	return stored.Data[v1alpha1.ClusterIDKey], nil
}
