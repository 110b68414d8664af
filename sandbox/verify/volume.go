package verify

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const dataDir = "/data"

// volume claims a volume of the default class, writes to it, deletes the pod and
// reads the data in a new one.
func volume(ctx context.Context, e *env) error {
	claims := e.client.CoreV1().PersistentVolumeClaims(e.namespace)
	wanted := &corev1.PersistentVolumeClaim{ObjectMeta: e.meta(e.slug), Spec: claimSpec()}
	if _, err := claims.Create(ctx, wanted, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating a claim: %w", err)
	}
	first, err := e.volumePod(ctx)
	if err != nil {
		return err
	}
	data := "written by " + string(first.UID)
	if _, err := e.exec(ctx, first.Name, nil, "sh", "-c", "echo "+data+" > "+dataDir+"/file && sync"); err != nil {
		return err
	}
	if err := e.deletePod(ctx, first); err != nil {
		return err
	}
	second, err := e.volumePod(ctx)
	if err != nil {
		return err
	}
	got, err := e.exec(ctx, second.Name, nil, "cat", dataDir+"/file")
	if err != nil {
		return err
	}
	if got != data+"\n" {
		return fmt.Errorf("the volume holds %q instead of %q", shorten(got, 100), data)
	}
	claim, err := claims.Get(ctx, e.slug, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the claim: %w", err)
	}
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return errors.New("the claim was given no default class")
	}
	return nil
}

// volumePod makes a pod with the claim of the check.
func (e *env) volumePod(ctx context.Context) (*corev1.Pod, error) {
	p := e.pod(e.slug, serve)
	withData(&p.Spec, &corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: e.slug}}})
	if err := e.createPod(ctx, p); err != nil {
		return nil, err
	}
	return e.ready(ctx, p.Name)
}

// withData mounts volume "data", which a StatefulSet adds by itself.
func withData(spec *corev1.PodSpec, v *corev1.Volume) {
	if v != nil {
		spec.Volumes = append(spec.Volumes, *v)
	}
	main := &spec.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: dataDir})
}

// claimSpec asks for a little room of the default class.
func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
	}
}
