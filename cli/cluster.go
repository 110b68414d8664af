package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// fieldOwner is the command line in managed fields.
const fieldOwner = client.FieldOwner("pelago-cli")

// managedBy is the value of LabelManagedBy on what the command line makes.
const managedBy = "pelago-cli"

// readLimit bounds commands that only look.
const readLimit = 30 * time.Second

// Access says which cluster is meant, by kubectl's rules.
type Access struct {
	// Kubeconfig is a file; the usual ones if empty.
	Kubeconfig string
	// Context of the kubeconfig; its current one if empty.
	Context string
	// remote says that it is the other cluster of a command for two, whose flags have other names.
	remote bool
}

// Cluster is a connection to the API server of a cluster.
type Cluster struct {
	// Client reads from the server.
	Client client.WithWatch
	// Discovery tells version and groups.
	Discovery discovery.DiscoveryInterface
	// Exec runs a command in a pod and returns what it writes.
	Exec func(ctx context.Context, namespace, pod string, command []string) (string, error)
	// Stream is like Exec, with streams for what the command reads and writes.
	Stream func(ctx context.Context, namespace, pod string, command []string, in io.Reader, out io.Writer) error
	// Server is the address in the kubeconfig.
	Server string
	// Names are those of context and cluster in the kubeconfig, context first.
	Names []string
	// Namespace is the one that the context names, default if it names none.
	Namespace string

	// answered says that the server has answered something.
	answered atomic.Bool
}

// Connect opens the cluster that Access means. It does not talk to it yet.
func Connect(a Access) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.Kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.Context})
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("no cluster is configured; set KUBECONFIG, or give --kubeconfig FILE")
	case err != nil:
		flags := "--kubeconfig and --context"
		if a.remote {
			flags = "--remote-kubeconfig and --remote-context"
		}
		return nil, fmt.Errorf("reading the kubeconfig: %w; choose with %s", err, flags)
	}
	var names []string
	if raw, err := loader.RawConfig(); err == nil {
		name := raw.CurrentContext
		if a.Context != "" {
			name = a.Context
		}
		names = append(names, name)
		if c := raw.Contexts[name]; c != nil {
			names = append(names, c.Cluster)
		}
	}
	c, err := newCluster(config, names)
	if err != nil {
		return nil, err
	}
	if c.Namespace, _, err = loader.Namespace(); err != nil {
		return nil, fmt.Errorf("reading the namespace in the kubeconfig: %w", err)
	}
	return c, nil
}

// answers tells that a server has answered.
type answers struct {
	http.RoundTripper
	heard *atomic.Bool
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := a.RoundTripper.RoundTrip(r)
	if err == nil {
		a.heard.Store(true)
	}
	return response, err
}

func newCluster(config *rest.Config, names []string) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // a person types slower than any server answers
	config.WarningHandler = rest.NewWarningWriter(os.Stderr, rest.WarningWriterOptions{Deduplicate: true})
	cluster := &Cluster{Exec: executor(config), Stream: streamer(config), Server: config.Host, Names: names}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return answers{next, &cluster.answered} })
	plain, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	mapper, err := newMapper(config, plain)
	if err != nil {
		return nil, err
	}
	cluster.Client, err = client.NewWithWatch(config, client.Options{Scheme: Scheme(), HTTPClient: plain, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	cluster.Discovery, err = discovery.NewDiscoveryClientForConfigAndClient(config, plain)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", config.Host, err)
	}
	return cluster, nil
}

// Scheme returns the kinds of Kubernetes and of Pelago.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// open connects to the cluster of the command.
func (e *Env) open() (*Cluster, error) { return e.Connect(e.access) }

// describe turns an error of the API server into a sentence that says what to do.
func describe(err error, c *Cluster) error {
	denial := kube.DenialOf(err)
	switch {
	case err == nil:
		return nil
	case notServed(err) && missingGroup(err) == v1alpha1.GroupVersion.Group:
		return fmt.Errorf("there is no Pelago in the cluster at %s; run: pelago install", c.Server)
	case notServed(err):
		return fmt.Errorf("%w: the cluster at %s does not serve that kind; have its owner turn it on in the API server", err, c.Server)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause): // forbidden to everybody
		return fmt.Errorf("%w; wait until that namespace is gone, and run the command again", err)
	case kube.Uncounted(err):
		return fmt.Errorf("%w; run the command again in a moment", err)
	case denial != nil: // who asks has the right
		return fmt.Errorf("%w; %s", err, denial.Remedy())
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; ask the cluster's owner for this right, or use another --context", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the cluster at %s does not accept the credentials of the kubeconfig; sign in again, or use another --context", c.Server)
	case errors.Is(err, context.DeadlineExceeded) && c.answered.Load():
		return fmt.Errorf("the cluster at %s answers, but not in time: %w; it, or the way to it, is slow; run the command again", c.Server, err)
	case errors.Is(err, context.DeadlineExceeded), unreachable(err):
		return fmt.Errorf("the cluster at %s does not answer: %w; see that it runs and that the kubeconfig has the right address", c.Server, err)
	case apierrors.IsConflict(err), apierrors.IsTooManyRequests(err), apierrors.IsServerTimeout(err), apierrors.IsTimeout(err),
		apierrors.IsServiceUnavailable(err), apierrors.IsInternalError(err):
		return fmt.Errorf("%w; run the command again; if it stays so, see: pelago status", err)
	}
	return err
}

// unreachable holds for errors of the connection, but for those of an interruption.
func unreachable(err error) bool {
	var broken *url.Error
	return errors.As(err, &broken) && !errors.Is(err, context.Canceled)
}

// isMissingKind holds for what discovery answers when a group is not there at all.
func isMissingKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.ReasonForError(err) == "NotFound" && unnamed(err)
}

// unnamed holds for a 404 that names no object: the kind itself is not served.
func unnamed(err error) bool {
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		return false
	}
	d := s.Status().Details
	return d == nil || d.Name == ""
}

// notServed reports whether the kind that was asked for is not there, as Pelago's are not before it is installed.
func notServed(err error) bool { return meta.IsNoMatchError(err) || isMissingKind(err) }

// missingGroup is the group of a kind that is not served.
func missingGroup(err error) string {
	if kind, is := errors.AsType[*meta.NoKindMatchError](err); is {
		return kind.GroupKind.Group
	}
	if resource, is := errors.AsType[*meta.NoResourceMatchError](err); is {
		return resource.PartialResource.Group
	}
	if s := apierrors.APIStatus(nil); errors.As(err, &s) && s.Status().Details != nil {
		return s.Status().Details.Group
	}
	return ""
}
