package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// path has a pod at milan read a stream of one at the far provider: it goes by rome, by a path of
// its own once all three let it, and by rome again when milan does not any more.
func (o *onward) path(t *testing.T, gone *corev1.Pod) {
	_, last, err := o.twins(gone)
	if err != nil {
		t.Fatal(err)
	}
	source := whoPod("", "source", "rome")
	source.Spec.Containers[0].Command[2] = streamLine
	o.create(t, source)
	at := o.running(t, "source").Status.PodIP
	reader := o.script("reader", "")
	reader.Spec.Containers[0].Command = []string{"sh", "-c", fmt.Sprintf(readLine, streamStep), join(at, webPort)}
	o.create(t, onto(reader, "milan-1"))
	d := &direct{crossing: o.crossing}
	d.reader = o.running(t, "reader")
	d.reads(t)
	o.goes(t, d, "rome")
	for _, pair := range [][2]string{{"rome", far}, {"milan", "rome"}} {
		if r := o.TryPelago(t, pair[0], "peer", "--remote-kubeconfig", o.Files[pair[1]], "--direct-paths"); r.Code != 0 {
			t.Fatalf("%s: allowing direct paths: exit %d\n%s%s", pair[0], r.Code, r.Out, r.Errs)
		}
	}
	begin := time.Now()
	d.eventually(t, pathLimit, "the far provider has a path for milan's pods alone", func() error {
		paths, err := o.pathsAt(far)
		if err == nil && (len(paths) != 1 || condition(paths[0].Status.Conditions, v1alpha1.ConditionReady) != "Ready=True(Ready)") {
			err = fmt.Errorf("there are %+v", paths)
		}
		if err != nil {
			return err
		}
		n, err := get[corev1.Namespace](o.continuum, far, "", o.at)
		if err == nil && (paths[0].Spec.OriginOwner == "" || paths[0].Spec.OriginOwner != n.Labels[v1alpha1.LabelOriginOwner]) {
			err = fmt.Errorf("it is for %q, and the namespace of %q", paths[0].Spec.OriginOwner, n.Labels[v1alpha1.LabelOriginOwner])
		}
		return err
	})
	t.Logf("onward: the path was Ready after %s", time.Since(begin).Round(100*time.Millisecond))
	o.goes(t, d, far)
	d.silence(t, "moving to the path")
	t.Run("Strangers", func(t *testing.T) { o.strangers(t, gone) })
	o.reached(t, gone)
	o.same(t, gone, last)
	begin = time.Now()
	o.Pelago(t, "milan", "peer", "rome", "--direct-paths=false")
	d.eventually(t, endLimit, "milan says no, and the path is gone", func() error {
		paths, err := o.pathsAt(far)
		if err == nil && len(paths) > 0 {
			err = fmt.Errorf("there are %+v", paths)
		}
		return err
	})
	t.Logf("onward: the path was gone %s after milan had said no", time.Since(begin).Round(100*time.Millisecond))
	o.goes(t, d, "rome")
	d.silence(t, "moving to the way by rome")
	for _, name := range []string{"reader", "source"} {
		if out, err := o.kubectl(t, "delete", "pod", name, "--wait=true", "--timeout=3m"); err != nil {
			t.Errorf("deleting %s: %v\n%s", name, err, out)
		}
	}
}

func (o *onward) pathsAt(cluster string) ([]v1alpha1.NetworkPath, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var list v1alpha1.NetworkPathList
	err := o.Clients[cluster].List(ctx, &list)
	return list.Items, err
}

// goes holds that the stream goes on, between milan and another cluster, and hardly any of it elsewhere.
func (o *onward) goes(t *testing.T, d *direct, other string) {
	t.Helper()
	way, not := [2]string{min("milan", other), max("milan", other)}, [2]string{"milan", "rome"}
	if other == "rome" {
		not = [2]string{far, "milan"}
	}
	base := d.flows(t)
	d.eventually(t, 2*networkLimit, "the stream goes between milan and "+other, func() error {
		now := d.flows(t)
		did, elsewhere := now[way]-base[way], now[not]-base[not]
		if did < movedBytes {
			return fmt.Errorf("%d bytes have", did)
		}
		base = now
		if elsewhere > did/4 {
			return fmt.Errorf("%d bytes have, and %d between %v", did, elsewhere, not)
		}
		return nil
	})
	d.reads(t)
}
