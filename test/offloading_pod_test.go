package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// mainJob holds that a plain Deployment runs there, with logs, exec, cp, port-forward and
// true status, and that deleting it here deletes it there, with its grace.
func mainJob(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.phase(t, v1alpha1.OffloadingPhaseReady)
	s.create(t, s.deployment("web", 2))
	pods := s.runningAll(t, "web", 2)
	for _, pod := range pods {
		twin, err := c.twin("milan", &pod)
		if err != nil {
			t.Fatal(err)
		}
		if pod.Spec.NodeName != "milan" || !strings.HasPrefix(twin.Spec.NodeName, "milan-") || twin.Name != pod.Name || twin.Namespace != s.name+"-rome" {
			t.Errorf("%s on %s is %s/%s on %s", pod.Name, pod.Spec.NodeName, twin.Namespace, twin.Name, twin.Spec.NodeName)
		}
		if ip := pod.Status.PodIP; ip != "" && ip == twin.Status.PodIP { // all clusters use the same ones
			t.Errorf("%s has the address %s, which means something else at home", pod.Name, ip)
		}
		if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Running == nil {
			t.Errorf("status of containers: %+v", pod.Status.ContainerStatuses)
		}
	}
	name := pods[0].Name
	s.says(t, name, "started")
	s.eventually(t, patience, "exec says the pod's name and ends with 3", func() error {
		out, err := s.kubectl(t, "exec", name, "--", "sh", "-c", "hostname; exit 3")
		if err == nil || !strings.Contains(out, name) || !strings.Contains(err.Error(), "exit code 3") {
			return fmt.Errorf("%q, %v", out, err)
		}
		return nil
	})
	content := []byte(strings.Repeat("all of it\n", 20000))
	from, back := file(t, content), file(t, nil)
	for _, way := range [][2]string{{from, s.name + "/" + name + ":/tmp/copied"}, {s.name + "/" + name + ":/tmp/copied", back}} {
		s.eventually(t, patience, "cp from "+way[0]+" to "+way[1], func() error {
			if out, err := s.kubectl(t, "cp", way[0], way[1]); err != nil {
				return fmt.Errorf("%s, %w", out, err)
			}
			return nil
		})
	}
	same(t, back, content)
	portForward(t, s)

	begin := time.Now()
	if err := c.Clients["rome"].Delete(t.Context(), &pods[1]); err != nil {
		t.Fatal(err)
	}
	s.gone(t, "milan", &pods[1])
	t.Logf("deleted on both sides after %s", time.Since(begin).Round(10*time.Millisecond))
	s.runningAll(t, "web", 2)
}

// says waits until the log of a pod holds all of some words. Being Ready is to have begun, not to have said something.
func (s shop) says(t *testing.T, pod string, words ...string) (out string) {
	t.Helper()
	s.eventually(t, patience, "the log of "+pod+" says what it is to say", func() (err error) {
		if out, err = s.kubectl(t, "logs", pod); err != nil {
			return fmt.Errorf("%s, %w", out, err)
		}
		for _, want := range words {
			if !strings.Contains(out, want) {
				return fmt.Errorf("the pod says %q; want %s", out, want)
			}
		}
		return nil
	})
	return out
}

// portForward holds that a port of a pod there can be opened here.
func portForward(t *testing.T, s shop) {
	t.Helper()
	s.create(t, s.script("http", "mkdir -p /www && echo from-$(hostname) > /www/index.html && exec httpd -f -p 8080 -h /www"))
	s.running(t, "http")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	address := forwarded(t, s.Command(ctx, "kubectl", s.cluster, "--", "-n", s.name, "port-forward", "pod/http", ":8080"))
	if got := fetch(t, "http://"+address+"/"); !strings.Contains(got, "from-http") {
		t.Errorf("through port-forward comes %q", got)
	}
}

// kubeletRights holds that the kubelet's API of a virtual node is for those who may.
func kubeletRights(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.sleeper("target"))
	s.running(t, "target")
	c.nodeReady(t, "rome", "milan")
	spy := c.shop(t, "rome")
	c.Run(t, "image", "build", callerImage, "--from-packages", "curl,dash,coreutils")
	c.Run(t, "image", "load", callerImage, "rome")
	pod := onto(spy.sleeper("spy"), "rome-1")
	pod.Spec.Containers[0].Image = callerImage
	spy.create(t, pod)
	spy.running(t, "spy")
	paths := []string{"/pods", "/containerLogs/" + s.name + "/target/main", "/exec/" + s.name + "/target/main?command=id&output=1", "/stats/summary", "/metrics/resource", "/healthz", "/"}
	for _, path := range paths {
		var got []string
		spy.eventually(t, patience, path+" is answered", func() error {
			node, err := get[corev1.Node](c, "rome", "", "milan") // each time: another manager may come to lead meanwhile
			if err != nil || len(node.Status.Addresses) == 0 {
				return fmt.Errorf("the node has no address (%v)", err)
			}
			address := fmt.Sprintf("https://%s:%d", node.Status.Addresses[0].Address, node.Status.DaemonEndpoints.KubeletEndpoint.Port)
			line := fmt.Sprintf(`T=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token); for H in "X: y" "Authorization: Bearer $T"; do curl -sk -m 10 -o /dev/null -w '%%{http_code} ' -H "$H" '%s%s'; done`, address, path)
			out, err := spy.kubectl(t, "exec", "spy", "--", "sh", "-c", line)
			if got = strings.Fields(out); err != nil || len(got) != 2 || slices.Contains(got, "000") {
				return fmt.Errorf("%s answers %q: %v", address, out, err)
			}
			return nil
		})
		if !slices.Equal(got, []string{"401", "403"}) {
			t.Errorf("%s from a pod, without and with its token: %q; want 401 and 403", path, got)
		}
	}
}

// top holds that what pods there use is seen here.
func top(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	// A shell alone can have a working set of nothing, and is then not shown. It works a little: others do too.
	s.create(t, s.script("busy", `x=$(head -c 4000000 /dev/zero | tr '\000' x); while sleep 0.2; do for i in $(seq 500); do :; done; done`))
	s.running(t, "busy")
	s.eventually(t, 2*patience, "top shows what the pod uses", func() error {
		out, err := s.kubectl(t, "top", "pod", "busy", "--no-headers")
		if err != nil {
			return err
		}
		if f := strings.Fields(out); len(f) != 3 || f[1] == "0m" || !strings.HasSuffix(f[2], "Mi") || f[2] == "0Mi" {
			return fmt.Errorf("top says %q", out)
		}
		return nil
	})
}

// mutableFields holds that image, ephemeral containers and resources follow, and that an ephemeral container
// that the provider refuses, as by kubectl's default profile, keeps nothing from that.
func mutableFields(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	s.create(t, s.sleeper("changes"))
	home := s.running(t, "changes")
	if out, err := s.kubectl(t, "debug", "changes", "--image="+boxImage, "--image-pull-policy=Never", "--profile=general", "--container=refused", "--", "true"); err != nil {
		t.Errorf("debug that is refused: %s %v", out, err)
	}
	if out, err := s.kubectl(t, "debug", "changes", "--image="+boxImage, "--image-pull-policy=Never", "--profile=baseline", "--container=look", "--", "sh", "-c", "echo looking; sleep 300"); err != nil {
		t.Errorf("debug: %s %v", out, err)
	}
	s.eventually(t, offloadLimit, "the ephemeral container runs there", func() error {
		out, err := s.kubectl(t, "logs", "changes", "-c", "look")
		if err != nil || !strings.Contains(out, "looking") {
			return fmt.Errorf("%q %v", out, err)
		}
		return nil
	})
	if out, err := s.kubectl(t, "patch", "pod", "changes", "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"25m"}}}]}}`); err != nil {
		t.Errorf("resize: %s %v", out, err)
	}
	if out, err := s.kubectl(t, "label", "pod", "changes", "tier=gold"); err != nil {
		t.Errorf("label: %s %v", out, err)
	}
	s.eventually(t, offloadLimit, "resources and labels have followed", func() error {
		twin, err := c.twin("milan", home)
		if err != nil {
			return err
		}
		if cpu := twin.Spec.Containers[0].Resources.Requests.Cpu(); cpu.MilliValue() != 25 || twin.Labels["tier"] != "gold" {
			return fmt.Errorf("cpu %s, labels %v", cpu, twin.Labels)
		}
		return nil
	})
}

// downwardAPI holds that a pod there sees who it is here.
func downwardAPI(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	pod := s.script("who", `echo "env=$NS/$NAME/$NODE/$UID_/$COLOR"; for f in /info/*; do echo "$(basename $f)=$(cat $f)"; done; sleep 1000`)
	pod.Labels["color"] = "blue"
	env := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	item := func(name, path string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	main := &pod.Spec.Containers[0]
	main.Env = []corev1.EnvVar{env("NS", "metadata.namespace"), env("NAME", "metadata.name"), env("NODE", "spec.nodeName"), env("UID_", "metadata.uid"), env("COLOR", "metadata.labels['color']")}
	main.VolumeMounts = []corev1.VolumeMount{{Name: "info", MountPath: "/info"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "info", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{item("namespace", "metadata.namespace"), item("labels", "metadata.labels")}}}}}
	s.create(t, pod)
	home := s.running(t, "who")
	out := s.says(t, "who", fmt.Sprintf("env=%s/who/milan/%s/blue", s.name, home.UID), "namespace="+s.name, `labels=app="who"`, `color="blue"`)
	if strings.Contains(out, "pelago") {
		t.Errorf("the pod sees ours: %s", out)
	}
}

// pullSecrets holds that the Secrets by which a pod's images are pulled travel with it,
// follow their changes and go with it, and that no other Secret does.
func pullSecrets(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome", "--pod-offloading-strategy", "Remote")
	login := func(password string) map[string][]byte {
		return map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"registry.example":{"username":"rome","password":%q}}}`, password)}
	}
	registry := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "registry"}, Type: corev1.SecretTypeDockerConfigJson, Data: login("first")}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Data: map[string][]byte{"key": []byte("private")}}
	s.create(t, registry)
	s.create(t, other)
	pod := s.sleeper("pulls")
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	s.create(t, pod)
	s.running(t, "pulls")
	there := s.name + "-rome"
	has := func(password string) func() error {
		return func() error {
			got, err := get[corev1.Secret](c, "milan", there, "registry")
			if err == nil && !strings.Contains(string(got.Data[corev1.DockerConfigJsonKey]), password) {
				err = fmt.Errorf("it is another one")
			}
			return err
		}
	}
	s.eventually(t, offloadLimit, "the Secret is there", has("first"))
	registry.Data = login("second")
	if err := c.Clients["rome"].Update(t.Context(), registry); err != nil {
		t.Fatal(err)
	}
	s.eventually(t, 2*offloadLimit, "the Secret has followed", has("second"))
	if _, err := get[corev1.Secret](c, "milan", there, "other"); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret at milan that no pod refers to: %v, want none", err)
	}
}
