package verify

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/sandbox/config"
)

// job runs three pods to their end, two at a time.
func job(ctx context.Context, e *env) error {
	spec := e.jobSpec()
	spec.Completions, spec.Parallelism = new(int32(3)), new(int32(2))
	jobs := e.client.BatchV1().Jobs(e.namespace)
	if _, err := jobs.Create(ctx, &batchv1.Job{ObjectMeta: e.meta(e.slug), Spec: spec}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a job: %w", err)
	}
	return until(ctx, "the job", func(ctx context.Context) error {
		j, err := jobs.Get(ctx, e.slug, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return unfinished(j, 3)
	})
}

// unfinished says what a job has not done yet; nil if it is complete.
func unfinished(j *batchv1.Job, want int32) error {
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue && j.Status.Succeeded == want {
			return nil
		}
	}
	return fmt.Errorf("%d active, %d succeeded, %d failed", j.Status.Active, j.Status.Succeeded, j.Status.Failed)
}

func (e *env) jobSpec() batchv1.JobSpec {
	t := e.template("echo done")
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return batchv1.JobSpec{Template: t, BackoffLimit: new(int32(2))}
}

// cronJob waits for the next minute and the Job that begins with it.
func cronJob(ctx context.Context, e *env) error {
	crons := e.client.BatchV1().CronJobs(e.namespace)
	_, err := crons.Create(ctx, &batchv1.CronJob{ObjectMeta: e.meta(e.slug), Spec: batchv1.CronJobSpec{
		Schedule:    "* * * * *",
		JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: e.labels()}, Spec: e.jobSpec()},
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a cronjob: %w", err)
	}
	err = until(ctx, "the cronjob's first job", func(ctx context.Context) error {
		list, err := e.client.BatchV1().Jobs(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: checkLabel + "=" + e.slug})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("there is none")
		}
		return unfinished(&list.Items[0], 1)
	})
	if err != nil {
		return err
	}
	if err := crons.Delete(ctx, e.slug, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		return fmt.Errorf("deleting the cronjob: %w", err)
	}
	return nil
}

// daemonSet wants a pod of it on every node.
func daemonSet(ctx context.Context, e *env) error {
	sets := e.client.AppsV1().DaemonSets(e.namespace)
	_, err := sets.Create(ctx, &appsv1.DaemonSet{ObjectMeta: e.meta(e.slug), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: e.labels()}, Template: e.template(serve),
	}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating a daemonset: %w", err)
	}
	return until(ctx, "a daemon on every node", func(ctx context.Context) error {
		pods, err := e.own(ctx)
		if err != nil {
			return err
		}
		on := map[string]bool{}
		for i := range pods {
			on[pods[i].Spec.NodeName] = notReady(&pods[i]) == nil
		}
		for _, node := range e.Nodes {
			if !on[node] {
				return fmt.Errorf("none is ready on %s", node)
			}
		}
		return nil
	})
}

// own lists the pods of the check.
func (e *env) own(ctx context.Context) ([]corev1.Pod, error) {
	list, err := e.client.CoreV1().Pods(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: checkLabel + "=" + e.slug})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// statefulSet wants its pods one after the other, and a deleted pod back under
// its name with its volume.
func statefulSet(ctx context.Context, e *env) error {
	storage := e.Addons[config.AddonStorage]
	if err := e.createOrdered(ctx, storage); err != nil {
		return err
	}
	first, err := e.ready(ctx, e.slug+"-0")
	if err != nil {
		return err
	}
	second, err := e.ready(ctx, e.slug+"-1")
	if err != nil {
		return err
	}
	if ready := changed(first, corev1.PodReady); second.CreationTimestamp.Time.Before(ready) {
		return fmt.Errorf("%s was made at %s, before %s was ready at %s", second.Name, second.CreationTimestamp, first.Name, ready)
	}
	if err := e.deletePod(ctx, first); err != nil {
		return err
	}
	if _, err := e.ready(ctx, first.Name); err != nil || !storage {
		return err
	}
	owner, err := e.exec(ctx, first.Name, nil, "cat", dataDir+"/owner")
	if err != nil {
		return err
	}
	if owner != string(first.UID)+"\n" {
		return fmt.Errorf("%s came back with the volume of pod %q instead of %s", first.Name, shorten(owner, 80), first.UID)
	}
	return nil
}

// createOrdered makes a StatefulSet of two whose pods put their UID on their
// volume, unless one is there.
func (e *env) createOrdered(ctx context.Context, storage bool) error {
	headless := e.service(e.slug, nil)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	if _, err := e.createService(ctx, headless); err != nil {
		return err
	}
	t := e.template(serve)
	set := &appsv1.StatefulSet{ObjectMeta: e.meta(e.slug), Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(2)), ServiceName: e.slug, Selector: &metav1.LabelSelector{MatchLabels: e.labels()},
	}}
	if storage {
		main := &t.Spec.Containers[0]
		main.Command[2] = "[ -e /data/owner ] || echo $OWNER > /data/owner\n" + serve
		main.Env = append(main.Env, corev1.EnvVar{Name: "OWNER", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}})
		withData(&t.Spec, nil)
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
			ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: e.labels()}, Spec: claimSpec(),
		}}
	}
	set.Spec.Template = t
	if _, err := e.client.AppsV1().StatefulSets(e.namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a statefulset: %w", err)
	}
	return nil
}
