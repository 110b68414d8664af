package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
	"github.com/pelago-dev/pelago/cli/setup"
	"github.com/pelago-dev/pelago/internal/home"
)

const (
	// valuesName is the ConfigMap in which an installation keeps what it was made of.
	valuesName = "pelago-install"
	// valuesKey is its key.
	valuesKey = "values.yaml"
	// defaultImage is where Pelago's programs are published.
	defaultImage = "pelago.dev/pelago"
	// mostValues bounds a file of values, in bytes: no ConfigMap keeps more.
	mostValues = 1 << 20
)

// given makes chart values of the flags: the file, then --set, then flags of their own.
func (i *install) given(ctx context.Context, e *Env) (map[string]any, error) {
	values, err := readValues(ctx, e, i.valuesFile)
	if err != nil {
		return nil, err
	}
	for _, text := range i.set {
		path, value, found := strings.Cut(text, "=")
		keys := splitPath(path)
		if !found || slices.Contains(keys, "") {
			return nil, usage("--set %q is not of the form PATH=VALUE, like config.offer.reserve=20%%; write a dot inside a key as \\.", text)
		}
		put(values, scalar(value), keys...)
	}
	for _, text := range i.labels {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return nil, usage("--labels %q is not of the form KEY=VALUE", text)
		}
		put(values, value, "config", "cluster", "labels", key)
	}
	if i.serviceType != "" && !slices.Contains(serviceTypes, i.serviceType) {
		return nil, usage("--auth-service-type %q is unknown; use %s", i.serviceType, strings.Join(serviceTypes, ", "))
	}
	if i.clusterName != "" {
		if err := v1alpha1.CheckClusterName(i.clusterName); err != nil {
			return nil, usage("--cluster-name: %w", err)
		}
	}
	if i.apiServerURL != "" {
		if err := checkURL(i.apiServerURL, "https"); err != nil {
			return nil, usage("--api-server-url: %w", err)
		}
	}
	for _, one := range []struct {
		value string
		path  []string
	}{
		{i.clusterName, []string{"config", "cluster", "name"}},
		{i.apiServerURL, []string{"config", "apiServer", "url"}},
		{i.serviceType, []string{"auth", "service", "type"}},
		{i.image, []string{"image", "ref"}},
	} {
		if one.value != "" {
			put(values, one.value, one.path...)
		}
	}
	return values, nil
}

// readValues reads a file of values.
func readValues(ctx context.Context, e *Env, name string) (map[string]any, error) {
	values := map[string]any{}
	if name == "" {
		return values, nil
	}
	text, err := unless(ctx, func() ([]byte, error) {
		if name == "-" {
			return readWhole(e.In, mostValues)
		}
		file, err := os.Open(name) // perhaps a pipe
		if err != nil {
			return nil, err
		}
		defer file.Close()
		return readWhole(file, mostValues)
	})
	switch {
	case errors.Is(err, errTooMuch):
		return nil, fmt.Errorf("reading --values: %w; give values alone, without what is no setting of Pelago", err)
	case err != nil:
		return nil, fmt.Errorf("reading --values: %w; give a file that can be read, or - for standard input", err)
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return nil, usage("--values %s is not a map in YAML: %w", name, err)
	}
	if values == nil {
		values = map[string]any{}
	}
	return values, nil
}

// scalar reads a value of --set as YAML would, text where it is nothing else.
func scalar(text string) any {
	var value any
	if text == "" || yaml.Unmarshal([]byte(text), &value) != nil {
		return text
	}
	return value
}

// splitPath splits at dots that are not escaped.
func splitPath(path string) []string {
	const mark = "\x00"
	keys := strings.Split(strings.ReplaceAll(path, `\.`, mark), ".")
	for i := range keys {
		keys[i] = strings.ReplaceAll(keys[i], mark, ".")
	}
	return keys
}

// put sets a value below a path, making maps on the way.
func put(values map[string]any, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		below, ok := values[key].(map[string]any)
		if !ok {
			below = map[string]any{}
			values[key] = below
		}
		values = below
	}
	values[path[len(path)-1]] = value
}

// lookup returns the value below a path, nil if there is none.
func lookup(values map[string]any, path ...string) any {
	var current any = values
	for _, key := range path {
		m, ok := current.(map[string]any)
		if !ok {
			return nil
		}
		current = m[key]
	}
	return current
}

// overlay lays values over base: maps are merged, all else replaces.
func overlay(base, values map[string]any) {
	for key, value := range values {
		over, isMap := value.(map[string]any)
		under, wasMap := base[key].(map[string]any)
		switch {
		case isMap && wasMap:
			overlay(under, over)
		case isMap:
			fresh := map[string]any{}
			overlay(fresh, over)
			base[key] = fresh
		default:
			base[key] = value
		}
	}
}

// storedValues is the ConfigMap that remembers values for the next time.
func storedValues(values map[string]any) (*unstructured.Unstructured, error) {
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("writing the values: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{valuesKey: string(text)}}}
	u.SetAPIVersion("v1")
	u.SetKind("ConfigMap")
	u.SetNamespace(v1alpha1.SystemNamespace)
	u.SetName(valuesName)
	u.SetLabels(map[string]string{v1alpha1.LabelManagedBy: setup.Installed, "app.kubernetes.io/part-of": "pelago"})
	return u, nil
}

// ownSettings is the ConfigMap of the installation that is there, nil if there is none. One that
// Helm or a tool with its chart made is theirs to change.
func (c *Cluster) ownSettings(ctx context.Context) (*corev1.ConfigMap, error) {
	var config corev1.ConfigMap
	err := c.Client.Get(ctx, inSystem(v1alpha1.ConfigName), &config)
	if apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, describe(fmt.Errorf("looking for an earlier installation: %w", err), c)
	}
	if config.Labels["app.kubernetes.io/managed-by"] != "Helm" {
		return &config, nil
	}
	const first = "first end what uses it, for which nothing else asks: pelago unoffload, pelago unpeer"
	if release := config.Annotations["meta.helm.sh/release-name"]; release != "" {
		return nil, fmt.Errorf("the Pelago here was installed with Helm; change it with: helm upgrade %[1]s -n %[2]s; to remove it %[3]s, then: helm uninstall %[1]s -n %[2]s",
			screen.Clean(release), v1alpha1.SystemNamespace, first)
	}
	return nil, fmt.Errorf("the Pelago here was made of its chart by helm template or a GitOps tool; change it there; to remove it %s, then have ConfigMap %s of namespace %s and the rest removed there",
		first, config.Name, config.Namespace)
}

// installed returns the values of the installation that is there, also of one that ended before its settings were
// applied, nil if there is none. Settings that were edited in the cluster since win over those that were installed. Where
// they cannot be read nobody knows what was edited: that is an error, unless all are given anew.
func (c *Cluster) installed(ctx context.Context, e *Env, anew bool) (map[string]any, error) {
	config, err := c.ownSettings(ctx)
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	var stored corev1.ConfigMap
	err = c.Client.Get(ctx, inSystem(valuesName), &stored)
	if config == nil && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err == nil {
		err = yaml.Unmarshal([]byte(stored.Data[valuesKey]), &values)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, describe(fmt.Errorf("reading the values of the earlier installation: %w", err), c)
	}
	if config == nil {
		return values, nil
	}
	settings := map[string]any{}
	err = yaml.UnmarshalStrict([]byte(config.Data[home.ConfigKey]), &settings)
	switch {
	case err != nil && !anew:
		return nil, fmt.Errorf("the settings in ConfigMap %s of namespace %s cannot be read: %w; correct them, or give --values FILE with all of them below config, cluster.name at least, to replace them",
			config.Name, config.Namespace, err)
	case err != nil:
		e.note("The settings in ConfigMap %s of namespace %s cannot be read and are replaced by those given: %s", config.Name, config.Namespace, screen.Clean(err.Error()))
		delete(values, "config")
	case len(settings) > 0:
		values["config"] = settings
	}
	if ref, _ := lookup(values, "image", "ref").(string); ref == "" {
		if ref, err = c.running(ctx); err != nil {
			return nil, err
		}
		put(values, ref, "image", "ref")
	}
	return values, nil
}

// anew reports whether the file of values gives the settings as a whole, which begin with who the
// cluster is.
func (i *install) anew(given map[string]any) bool {
	return i.valuesFile != "" && lookup(given, "config", "cluster", "name") != nil
}

// running is the image of pelago-manager, empty if it is not there.
func (c *Cluster) running(ctx context.Context) (string, error) {
	var d appsv1.Deployment
	if err := c.Client.Get(ctx, inSystem(managerDeployment), &d); client.IgnoreNotFound(err) != nil {
		return "", describe(fmt.Errorf("reading Deployment %s: %w", managerDeployment, err), c)
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		return container.Image, nil
	}
	return "", nil
}

// imageOf is the image of a version from where the image before came, Pelago's own place
// if there was none.
func imageOf(before, version string) string {
	repository, _, _ := strings.Cut(before, "@")
	if colon := strings.LastIndexByte(repository, ':'); colon > strings.LastIndexByte(repository, '/') {
		repository = repository[:colon]
	}
	if repository == "" {
		repository = defaultImage
	}
	return repository + ":" + version
}
