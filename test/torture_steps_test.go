package test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/test/torture"
)

const (
	// userLimit is how long a user tries one step, through all that goes wrong meanwhile:
	// the end of an offloading alone may take five minutes.
	userLimit = 6 * time.Minute
	// callWait bounds one call, which may meet a frozen API server.
	callWait = 10 * time.Second
	// healTries is how often the end of a fault is tried.
	healTries = 10
)

// errSkipped: a step is not done, as it has slipped to where it must not be.
var errSkipped = errors.New("skipped")

// storm does the steps: those of each namespace in its own lane, faults by the clock.
// At its end all faults are over.
func (r *rack) storm(t *testing.T, steps []torture.Step, length time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(r.over, length)
	defer cancel()
	lanes := map[string][]torture.Step{}
	var done sync.WaitGroup
	r.begin = time.Now()
	for _, s := range steps {
		if s.Fault() {
			done.Go(func() {
				if r.await(ctx, s.At) {
					r.fault(ctx, s)
				}
			})
		} else {
			lanes[s.Place()] = append(lanes[s.Place()], s)
		}
	}
	for _, lane := range lanes {
		done.Go(func() {
			for _, s := range lane {
				if !r.await(ctx, s.At) {
					return
				}
				r.user(s)
			}
		})
	}
	done.Wait()
	r.mu.Lock()
	count := len(r.history)
	r.mu.Unlock()
	t.Logf("the storm is over after %s and %d steps", r.now().Round(time.Second), count)
	r.failed(t)
}

// await waits for a time of the storm; false if the storm is over before.
func (r *rack) await(ctx context.Context, at time.Duration) bool {
	timer := time.NewTimer(time.Until(r.begin.Add(at)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// user does a step of a user's until it is done. The model has it from then on.
func (r *rack) user(s torture.Step) {
	begun := r.now()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(r.over, userLimit)
	defer cancel()
	for tries := 1; ; tries++ {
		one, end := context.WithTimeout(ctx, 2*callWait)
		err := r.attempt(one, s)
		end()
		switch {
		case err == nil:
			r.mu.Lock()
			r.model.Apply(s)
			r.mu.Unlock()
			r.did(s, begun, tried(tries))
			return
		case errors.Is(err, errSkipped):
			r.did(s, begun, err.Error())
			return
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		r.did(s, begun, "given up: "+err.Error())
		if r.over.Err() == nil {
			r.violated(torture.Violation{Rule: "users are not kept waiting", Place: s.Place(), App: s.Name(), Text: fmt.Sprintf("%s is not done after %s: %v", s, userLimit, err)})
		}
		return
	}
}

func tried(times int) string {
	if times == 1 {
		return ""
	}
	return fmt.Sprintf("done at try %d", times)
}

// attempt tries a step of a user's once. Whoever tries again after an answer was lost
// finds it done.
func (r *rack) attempt(ctx context.Context, s torture.Step) error {
	home := r.Clients[torture.Home]
	switch s.Verb {
	case torture.Deploy, torture.Stateful, torture.Job:
		err := home.Create(ctx, r.app(s))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	case torture.Delete:
		return client.IgnoreNotFound(home.Delete(ctx, r.object(s), client.PropagationPolicy(metav1.DeletePropagationBackground)))
	case torture.Scale:
		return home.Patch(ctx, r.object(s), merge(`{"spec":{"replicas":%d}}`, s.Number))
	case torture.Roll:
		return home.Patch(ctx, r.object(s), merge(`{"spec":{"template":{"metadata":{"labels":{%q:"%d"}}}}}`, torture.LabelTier, s.Number))
	case torture.Mark:
		return r.mark(ctx, s)
	case torture.Rotate:
		value := torture.Canary{Place: s.Place(), Secret: torture.Login, Version: strconv.Itoa(s.Number)}
		return home.Patch(ctx, secretOf(s.Place(), torture.Login), merge(`{"stringData":{"value":%q}}`, value.String()))
	case torture.Offload, torture.Unoffload:
		return r.place(ctx, s)
	}
	return fmt.Errorf("nobody knows how to %s", s.Verb)
}

func merge(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

// mark labels the pods that an app has now.
func (r *rack) mark(ctx context.Context, s torture.Step) error {
	var pods corev1.PodList
	home := r.Clients[torture.Home]
	if err := home.List(ctx, &pods, client.InNamespace(s.Place()), client.MatchingLabels{torture.LabelApp: s.Name()}); err != nil {
		return err
	}
	for i := range pods.Items {
		if err := client.IgnoreNotFound(home.Patch(ctx, &pods.Items[i], merge(`{"metadata":{"labels":{%q:"%d"}}}`, torture.LabelMark, s.Number))); err != nil {
			return err
		}
	}
	return nil
}

// place offloads a namespace or brings it back, by the command that people use. What
// counts is that it is asked for: the command need not have seen the end.
func (r *rack) place(ctx context.Context, s torture.Step) error {
	args := []string{"offload", "namespace", s.Place(), "--pod-offloading-strategy", string(torture.Strategies[s.Place()]), "--timeout", "5s"}
	if s.Verb == torture.Unoffload {
		r.mu.Lock()
		slipped := r.long > 0
		if !slipped {
			r.leaving = time.Now()
		}
		r.mu.Unlock()
		if slipped {
			return fmt.Errorf("%w: the provider is away for long", errSkipped)
		}
		args = []string{"unoffload", "namespace", s.Place(), "--timeout", "2s"}
	}
	said := r.TryPelago(r.t, torture.Home, args...)
	o := &v1alpha1.NamespaceOffloading{}
	readErr := r.Clients[torture.Home].Get(ctx, client.ObjectKey{Namespace: s.Place(), Name: v1alpha1.OffloadingName}, o)
	if client.IgnoreNotFound(readErr) != nil {
		return readErr
	}
	there := readErr == nil && o.DeletionTimestamp == nil
	if there == (s.Verb == torture.Offload) {
		return nil
	}
	return fmt.Errorf("pelago %s: exit %d: %s", strings.Join(args, " "), said.Code, said.Errs)
}

// fault does what goes wrong, and undoes it after its time or when the storm is over.
func (r *rack) fault(ctx context.Context, s torture.Step) {
	begun := r.now()
	var err error
	switch s.Verb {
	case torture.Strike:
		one, end := context.WithTimeout(ctx, callWait)
		defer end()
		err = r.Clients[s.Place()].DeleteAllOf(one, &corev1.Pod{}, client.InNamespace(v1alpha1.SystemNamespace),
			client.MatchingLabels{"app.kubernetes.io/name": s.Name()}, strikeGrace)
	case torture.Lose:
		err = r.lose(ctx, s)
	default:
		err = r.outage(ctx, s)
	}
	note := ""
	if err != nil {
		note = "not done: " + err.Error()
	}
	r.did(s, begun, note)
}

// lose deletes a pod of an app at the provider, as its owner may.
func (r *rack) lose(ctx context.Context, s torture.Step) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	var pods corev1.PodList
	there := client.InNamespace(torture.Mapped(s.Place()))
	if err := r.Clients[torture.Provider].List(ctx, &pods, there, client.MatchingLabels{torture.LabelApp: s.Name()}); err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errors.New("there is none")
	}
	return client.IgnoreNotFound(r.Clients[torture.Provider].Delete(ctx, &pods.Items[0]))
}

// outage begins what lasts, and ends it.
func (r *rack) outage(ctx context.Context, s torture.Step) error {
	begin, end := []string{"link", "cut", torture.Home, torture.Provider}, []string{"link", "heal", torture.Home, torture.Provider}
	switch s.Verb {
	case torture.Pause:
		begin, end = []string{"api", "pause", s.Target}, []string{"api", "resume", s.Target}
	case torture.Stop:
		begin, end = []string{"node", "stop", s.Place(), s.Name()}, []string{"node", "start", s.Place(), s.Name()}
	}
	if s.Long() {
		r.mu.Lock()
		slipped := time.Since(r.leaving) < torture.Leaving
		if !slipped {
			r.long++
		}
		r.mu.Unlock()
		if slipped {
			return fmt.Errorf("%w: a namespace is coming home", errSkipped)
		}
		defer func() {
			r.mu.Lock()
			r.long--
			r.mu.Unlock()
		}()
	}
	err := r.command(begin...)
	r.await(ctx, r.now()+s.For)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for tries := 1; ; tries++ {
		healed := r.command(end...)
		if healed == nil {
			return err
		}
		if tries == healTries {
			r.violated(torture.Violation{Rule: "what is broken can be healed", Text: healed.Error()})
			return healed
		}
		<-tick.C
	}
}

// command runs one of the sandbox, whatever the storm does. Those that change machines or
// links are done one after the other.
func (r *rack) command(args ...string) error {
	if args[0] != "api" {
		r.sandbox.Lock()
		defer r.sandbox.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	_, err := r.Try(ctx, args...)
	return err
}

// object is the empty object of the kind that an app is.
func (r *rack) object(s torture.Step) client.Object {
	r.mu.Lock()
	app := r.model.Places[s.Place()].Apps[s.Name()]
	r.mu.Unlock()
	meta := metav1.ObjectMeta{Namespace: s.Place(), Name: s.Name()}
	switch {
	case app != nil && app.Kind == torture.Stateful:
		return &appsv1.StatefulSet{ObjectMeta: meta}
	case app != nil && app.Kind == torture.Job:
		return &batchv1.Job{ObjectMeta: meta}
	}
	return &appsv1.Deployment{ObjectMeta: meta}
}

// app is what a step makes.
func (r *rack) app(s torture.Step) client.Object {
	in := shop{r.continuum, torture.Home, s.Place()}
	replicas := int32(s.Number)
	switch s.Verb {
	case torture.Job:
		job := in.job(s.Name(), fmt.Sprintf("sleep %d", s.Number))
		backoff, failed := int32(20), batchv1.Failed
		job.Spec.BackoffLimit, job.Spec.PodReplacementPolicy = &backoff, &failed
		job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}}}}
		tortured(&job.Spec.Template, s)
		return job
	case torture.Stateful:
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.Place(), Name: s.Name()}, Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{torture.LabelApp: s.Name()}},
			Template: in.deployment(s.Name(), 1).Spec.Template}}
		tortured(&set.Spec.Template, s)
		return set
	}
	d := in.deployment(s.Name(), replicas)
	tortured(&d.Spec.Template, s)
	if s.Name() == torture.Alien {
		d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	return d
}

// tortured gives a template the labels that rules go by, and the Secrets of its place:
// one that travels, and one that is to stay home, without which the pod runs as well.
func tortured(template *corev1.PodTemplateSpec, s torture.Step) {
	template.Labels[torture.LabelPlace], template.Labels[torture.LabelTier] = s.Place(), "0"
	optional := true
	main := &template.Spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: torture.Login, MountPath: "/etc/login"})
	main.EnvFrom = append(main.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: torture.Denied}, Optional: &optional}})
	template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: torture.Login,
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: torture.Login}}})
}

// secretOf is a Secret of a place whose value tells which it is.
func secretOf(place, name string) *corev1.Secret {
	value := torture.Canary{Place: place, Secret: name, Version: "0"}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: name}, StringData: map[string]string{"value": value.String()}}
	if name == torture.Denied {
		s.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
	}
	return s
}
