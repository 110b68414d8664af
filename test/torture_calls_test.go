package test

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/test/torture"
)

const (
	// mute is how long a caller's log may say nothing before it is asked for anew: callers say
	// something every few seconds.
	mute = 30 * time.Second
	// askAgain is the time between two times that one is asked for.
	askAgain = time.Second
)

// calling is what the container of an app that calls or is called does.
func calling(app string) string {
	if app == torture.Vault {
		return fmt.Sprintf("mkdir -p /www; hostname > /www/index.html; trap 'exit 0' TERM; httpd -f -p %d -h /www & wait", torture.VaultPort)
	}
	var calls strings.Builder
	for _, place := range torture.Vaults {
		fmt.Fprintf(&calls, "a=$(timeout 3 wget -q -O - http://%s:%d/ 2>/dev/null); echo %s ${a:--}; ", torture.VaultHost(place), torture.VaultPort, place)
	}
	return "trap 'exit 0' TERM; while true; do " + calls.String() + "sleep 0.5; done"
}

// fence is the NetworkPolicy of a place: guests of any place call its vault, and nobody else.
func fence(place string) *networkingv1.NetworkPolicy {
	guests := labelled(torture.Guest)
	p := policyOf("fence", networkingv1.NetworkPolicySpec{PodSelector: labelled(torture.Vault), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &guests}}}}})
	p.Namespace = place
	return p
}

// listen hears what a caller says of its calls, where it runs, until it is gone.
func (r *rack) listen(ctx context.Context, at kubernetes.Interface, cluster string, pod *corev1.Pod) {
	home := string(pod.UID)
	if cluster == torture.Provider {
		home = pod.Labels[v1alpha1.LabelHomeUID]
	}
	app := pod.Labels[torture.LabelApp]
	if app != torture.Guest && app != torture.Stranger || home == "" || pod.Spec.NodeName == "" || pod.Spec.NodeName == torture.Provider {
		return
	}
	r.mu.Lock()
	heard := r.ears[string(pod.UID)]
	r.ears[string(pod.UID)] = true
	r.mu.Unlock()
	if heard {
		return
	}
	go func() {
		tick := time.NewTicker(askAgain)
		defer tick.Stop()
		since := metav1.Now()
		for r.there(cluster, string(pod.UID)) {
			r.follow(ctx, at, pod, home, &since)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

// there says whether a pod is.
func (r *rack) there(cluster, uid string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	side := r.world.Home
	if cluster == torture.Provider {
		side = r.world.Remote
	}
	_, there := side.Pods[uid]
	return there
}

// follow hears a caller as long as its log says something. What it said since a time may be heard
// twice.
func (r *rack) follow(ctx context.Context, at kubernetes.Interface, pod *corev1.Pod, home string, since *metav1.Time) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silent := time.AfterFunc(mute, cancel)
	defer silent.Stop()
	log, err := at.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{Follow: true, SinceTime: since}).Stream(ctx)
	if err != nil {
		return // not started yet, or an API server that is frozen
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		silent.Reset(mute)
		*since = metav1.Now()
		call, err := torture.ParseCall(home, lines.Text(), time.Now())
		if err != nil {
			continue // the last line of one that was killed while it wrote
		}
		r.mu.Lock()
		r.world.Now = call.At
		found := r.world.Hear(call)
		r.mu.Unlock()
		for _, v := range found {
			r.violated(v)
		}
	}
}

// called holds that calls between the clusters were answered and refused, without which the rule that strangers
// are not answered would say nothing: in the storm or, where hardly a pod had started by its end, after it, with a
// vault that is at the provider then.
func (r *rack) called(t *testing.T, steps []torture.Step) {
	t.Helper()
	if t.Failed() || !torture.Calling(steps) {
		return
	}
	tally := r.tally()
	if tally.Answered == 0 || tally.Refused == 0 {
		for _, s := range []torture.Step{{Verb: torture.Offload, Target: torture.Keep}, {Verb: torture.Roll, Target: torture.Keep + "/" + torture.Vault, Number: 1 << 20}} {
			s.At = r.now()
			r.user(s)
		}
		r.converge(t, "all is as users want it with a vault at the provider", nil)
	}
	r.converge(t, "there are calls between the clusters", func() []string {
		if tally = r.tally(); tally.Answered == 0 || tally.Refused == 0 {
			return []string{fmt.Sprintf("answered to guests: %d, not answered to strangers: %d", tally.Answered, tally.Refused)}
		}
		return nil
	})
	t.Logf("between the clusters guests were answered %d times, and strangers were not %d times", tally.Answered, tally.Refused)
}

func (r *rack) tally() torture.Tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.world.Tally
}
