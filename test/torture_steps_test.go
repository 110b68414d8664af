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
	// faultWait is how long a fault waits for pods to hit; loseWait that of one pod, which may have to start first.
	faultWait, loseWait = 20 * time.Second, 3 * time.Minute
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
	r.worked(steps, length)
	r.failed(t)
}

// worked holds of a storm that came to its end that its faults did something.
func (r *rack) worked(steps []torture.Step, length time.Duration) {
	r.mu.Lock()
	idle := r.history.Idle(steps, length)
	r.mu.Unlock()
	if len(idle) > 0 && r.over.Err() == nil {
		r.violated(torture.Violation{Rule: "faults do something", Text: strings.Join(idle, "\n  ")})
	}
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
	case torture.Configure:
		return r.makeOrChange(ctx, settingsOf(s), merge(`{"data":{"value":%q}}`, settingsOf(s).Data["value"]))
	case torture.Expose:
		return r.makeOrChange(ctx, serviceOf(s), merge(`{"spec":{"ports":[{"port":%d}]}}`, s.Number))
	case torture.Rotate:
		value := torture.Canary{Place: s.Place(), Object: torture.Login, Version: strconv.Itoa(s.Number)}
		return home.Patch(ctx, secretOf(s.Place(), torture.Login), merge(`{"stringData":{"value":%q}}`, value.String()))
	case torture.Offload, torture.Unoffload:
		return r.place(ctx, s)
	}
	return fmt.Errorf("nobody knows how to %s", s.Verb)
}

func merge(format string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
}

// makeOrChange changes an object, or makes it if it is not there.
func (r *rack) makeOrChange(ctx context.Context, object client.Object, change client.Patch) error {
	home, made := r.Clients[torture.Home], object.DeepCopyObject().(client.Object)
	err := home.Patch(ctx, object, change)
	if apierrors.IsNotFound(err) {
		return home.Create(ctx, made)
	}
	return err
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
	var note string
	var err error
	switch s.Verb {
	case torture.Strike:
		note, err = r.insist(ctx, faultWait, func(ctx context.Context) (string, error) { return r.strike(ctx, s) })
	case torture.Lose:
		note, err = r.insist(ctx, loseWait, func(ctx context.Context) (string, error) { return r.lose(ctx, s) })
	default:
		s, note = r.shorten(s)
		err = r.outage(ctx, s)
	}
	if err != nil {
		note = "not done: " + err.Error()
	}
	r.note(torture.Done{Step: s, Note: note, Undone: err != nil}, begun)
}

// insist tries for a while what needs pods to be there, and an API server that answers.
func (r *rack) insist(ctx context.Context, wait time.Duration, try func(context.Context) (string, error)) (note string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		one, end := context.WithTimeout(ctx, callWait)
		note, failed := try(one)
		end()
		if failed == nil {
			return note, nil
		}
		if err == nil || ctx.Err() == nil {
			err = failed // not that the time is over, if there is more to say
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-tick.C:
		}
	}
}

// strike deletes the pods of a component, and says how many. That nobody is struck is no strike.
func (r *rack) strike(ctx context.Context, s torture.Step) (string, error) {
	at, struck := r.Clients[s.Place()], 0
	var pods corev1.PodList
	if err := at.List(ctx, &pods, client.InNamespace(torture.NamespaceOf(s.Name())), client.MatchingLabels{"app.kubernetes.io/name": s.Name()}); err != nil {
		return "", err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		if err := at.Delete(ctx, pod, strikeGrace); client.IgnoreNotFound(err) != nil {
			return "", err
		} else if err == nil {
			struck++
		}
	}
	if struck == 0 {
		return "", fmt.Errorf("%s has no pod of %s to strike", s.Place(), s.Name())
	}
	return fmt.Sprintf("%d struck", struck), nil
}

// lose deletes a pod of an app at the provider, as its owner may.
func (r *rack) lose(ctx context.Context, s torture.Step) (string, error) {
	var pods corev1.PodList
	there := client.InNamespace(torture.Mapped(s.Place()))
	if err := r.Clients[torture.Provider].List(ctx, &pods, there, client.MatchingLabels{torture.LabelApp: s.Name()}); err != nil {
		return "", err
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			return pods.Items[i].Name, r.Clients[torture.Provider].Delete(ctx, &pods.Items[i])
		}
	}
	return "", errors.New("there is none")
}

// shorten makes a long outage a short one if it has slipped to where a namespace comes
// home. What stays long is counted until endLong.
func (r *rack) shorten(s torture.Step) (torture.Step, string) {
	if !s.Long() {
		return s, ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.leaving) < torture.Leaving {
		return s.Shortened(), fmt.Sprintf("not %s: a namespace is coming home", s.For)
	}
	r.long++
	return s, ""
}

func (r *rack) endLong() {
	r.mu.Lock()
	r.long--
	r.mu.Unlock()
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
		defer r.endLong()
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
	case s.Name() == torture.Settings:
		return &corev1.ConfigMap{ObjectMeta: meta}
	case torture.IsService(s.Name()):
		return &corev1.Service{ObjectMeta: meta}
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

// tortured gives a template the labels that rules go by, and the Secrets of its place, one
// that travels, and one that is to stay home; and its ConfigMap. It runs without the latter two.
func tortured(template *corev1.PodTemplateSpec, s torture.Step) {
	template.Labels[torture.LabelPlace], template.Labels[torture.LabelTier] = s.Place(), "0"
	optional := true
	main := &template.Spec.Containers[0]
	if torture.Calls(s.Name()) {
		main.Command = []string{"sh", "-c", calling(s.Name())}
	}
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: torture.Login, MountPath: "/etc/login"})
	main.EnvFrom = append(main.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: torture.Denied}, Optional: &optional}}, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: torture.Settings}, Optional: &optional}})
	template.Spec.Volumes = append(template.Spec.Volumes, corev1.Volume{Name: torture.Login,
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: torture.Login}}})
}

// settingsOf and serviceOf are what a step makes of pods' ConfigMap and of a Service.
func settingsOf(s torture.Step) *corev1.ConfigMap {
	value := torture.Canary{Place: s.Place(), Object: torture.Settings, Version: strconv.Itoa(s.Number)}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Place(), Name: torture.Settings}, Data: map[string]string{"value": value.String()}}
}

func serviceOf(s torture.Step) *corev1.Service {
	labels := map[string]string{torture.LabelPlace: s.Place()} // by which it is known wherever it goes
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: s.Place(), Name: s.Name(), Labels: labels}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{torture.LabelApp: torture.AppOf(s.Name())}, Ports: []corev1.ServicePort{{Port: int32(s.Number)}}}}
}

// secretOf is a Secret of a place whose value tells which it is.
func secretOf(place, name string) *corev1.Secret {
	value := torture.Canary{Place: place, Object: name, Version: "0"}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: name}, StringData: map[string]string{"value": value.String()}}
	if name == torture.Denied {
		s.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
	}
	return s
}
