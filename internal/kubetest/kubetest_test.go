package kubetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestServer(t *testing.T) {
	server := Server(t)
	t.Logf("the API server took %v to be ready", server.Startup) // as long as what else runs on the machine leaves it
	client := clientOf(t, server)
	namespace := server.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	wrote := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "note"}, Data: map[string]string{"text": "hello"}}
	if _, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, wrote, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	read, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, "note", metav1.GetOptions{})
	if err != nil || read.Data["text"] != "hello" {
		t.Errorf("read %v, %v; want the text that was written", read.Data, err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "idle"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Errorf("pods can be made: %v", err)
	}
}

func TestNamespaceIsRemoved(t *testing.T) {
	server := Server(t)
	client := clientOf(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	defer cancel()
	var first, second string
	t.Run("Uses two/of its own", func(t *testing.T) {
		first, second = server.Namespace(t), server.Namespace(t)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}
		if _, err := client.CoreV1().Secrets(first).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if first == second || !strings.HasPrefix(first, "testnamespaceisremoved-uses-two-of-its-own-") {
		t.Errorf("namespaces %q and %q: want two, named after the test", first, second)
	}
	for _, name := range []string{first, second} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s after its test: %v, want not found", name, err)
		}
	}
	secrets, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=kept"})
	if err != nil || len(secrets.Items) != 0 {
		t.Errorf("the namespace left %d secrets behind, %v", len(secrets.Items), err)
	}
}

// TestOneServerPerRun runs go test on two packages: both get the same server, and it
// ends with that run.
func TestOneServerPerRun(t *testing.T) {
	out := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	// Compiled as the programs are, or all that they import would be compiled once more for this.
	run := exec.CommandContext(ctx, "go", "test", "-count=1", "-trimpath", "-ldflags=-w", "./testdata/first", "./testdata/second")
	run.Env = append(os.Environ(), "CGO_ENABLED=0", "KUBETEST_OUT="+out, EnvProgram+"="+Program(t))
	run.WaitDelay = time.Second
	if text, err := run.CombinedOutput(); err != nil {
		t.Fatalf("running the two packages: %v\n%s", err, text)
	}
	first, err := os.ReadFile(filepath.Join(out, "first"))
	if err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(filepath.Join(out, "second"))
	if err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) {
		t.Errorf("the packages used %s and %s, want one server", first, second)
	}
	eventually(t, "the server of the run has removed its directory", func() bool {
		_, err := os.Stat(filepath.Dir(string(first)))
		return os.IsNotExist(err)
	})
}

func TestNamespaceName(t *testing.T) {
	cases := []struct{ reason, test, want string }{
		{"the test is recognised", "TestPeering/accepts_a_token", "testpeering-accepts-a-token-0a1b2c3d"},
		{"a name has 63 characters at most", strings.Repeat("TestX", 20), strings.Repeat("testx", 10) + "test-0a1b2c3d"},
		{"a name starts with a letter or digit", "Ünï", "n-0a1b2c3d"},
		{"a name without one of them", "Ü", "0a1b2c3d"},
	}
	for _, c := range cases {
		if got := namespaceName(c.test, "0a1b2c3d"); got != c.want || len(got) > 63 {
			t.Errorf("%s: %q gives %q, want %q", c.reason, c.test, got, c.want)
		}
	}
}

func clientOf(t *testing.T, server *APIServer) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
