package reflection

import (
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// podWithTokens makes a pod of the service account robot with two tokens, the API server's
// and one for vault, in a namespace with a knob as given, and returns the name of the Secret.
func (w *world) podWithTokens(knob v1alpha1.TokenPolicy, edits ...func(*corev1.PodSpec)) (*corev1.Pod, string) {
	w.t.Helper()
	w.robot(knob)
	return w.robotPod(edits...)
}

// robot is the service account of such pods, and what it needs.
func (w *world) robot(knob v1alpha1.TokenPolicy) {
	w.t.Helper()
	w.create(&corev1.ServiceAccount{ObjectMeta: objectMeta(w.home, "robot")})
	w.create(&corev1.ConfigMap{ObjectMeta: objectMeta(w.home, "kube-root-ca.crt"), Data: map[string]string{"ca.crt": "home's"}})
	w.create(&v1alpha1.NamespaceOffloading{ObjectMeta: objectMeta(w.home, v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{ServiceAccountTokens: knob}})
}

// robotPod is a pod with tokens, and the name of the Secret that carries them.
func (w *world) robotPod(edits ...func(*corev1.PodSpec)) (*corev1.Pod, string) {
	w.t.Helper()
	token := func(path, audience string, seconds int64) corev1.VolumeProjection {
		return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: path, Audience: audience, ExpirationSeconds: ptr.To(seconds)}}
	}
	pod := w.podWith("web", func(spec *corev1.PodSpec) {
		spec.ServiceAccountName = "robot"
		spec.Volumes = []corev1.Volume{{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{token("token", "", 3607), token("vault", "vault", 600)}}}}}
		for _, edit := range edits {
			edit(spec)
		}
	})
	return pod, v1alpha1.TokenSecret(string(pod.UID))
}

// shadowPod is what the room of pods makes at the provider.
func (w *world) shadowPod(pod *corev1.Pod, tokens bool) *v1alpha1.ShadowPod {
	w.t.Helper()
	s, _, err := shadow.Forge(pod, shadow.Place{Node: w.name, Request: "default", Tokens: tokens})
	if err != nil {
		w.t.Fatal(err)
	}
	s.Namespace, s.Finalizers = w.TenantNamespace(), nil
	w.create(s)
	return s
}

// turn sets the knob.
func (w *world) turn(knob v1alpha1.TokenPolicy) {
	w.t.Helper()
	o := get(w, w.home, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	o.Spec.ServiceAccountTokens = knob
	if err := w.raw.Update(ctx, o); err != nil {
		w.t.Fatal(err)
	}
}

// review asks the API server whose a token is.
func (w *world) review(token []byte, audiences ...string) authenticationv1.TokenReviewStatus {
	w.t.Helper()
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: string(token), Audiences: audiences}}
	if err := w.raw.Create(ctx, r); err != nil {
		w.t.Fatal(err)
	}
	return r.Status
}

// TestTokens: a pod has the tokens of its service account, bound to it, made anew in time
// and gone with it.
func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod, name := w.podWithTokens(v1alpha1.TokensAllow)
	w.both(name)
	if w.shadow(name) != nil {
		t.Fatal("tokens are sent before there is a pod that expects them")
	}
	running := w.shadowPod(pod, true)
	began := w.clock.Now()
	w.both(name)
	made := w.made(name)
	if made == nil || made.Type != v1alpha1.TokenSecretType || string(made.Data["ca.crt"]) != "home's" || len(made.Data) != 3 {
		t.Fatalf("made %v, %s", made != nil, w.answer(name))
	}
	who := w.review(made.Data["token-0"])
	if !who.Authenticated || who.User.Username != "system:serviceaccount:"+w.home+":robot" ||
		strings.Join(who.User.Extra["authentication.kubernetes.io/pod-uid"], "") != string(pod.UID) {
		t.Errorf("the token is of %+v, %s", who.User, who.Error)
	}
	if who := w.review(made.Data["token-1"], "vault"); !who.Authenticated {
		t.Errorf("the token for vault: %s", who.Error)
	}
	if who := w.review(made.Data["token-1"]); who.Authenticated {
		t.Error("the token for vault opens the API server")
	}
	due, err := time.Parse(time.RFC3339, w.shadow(name).Annotations[v1alpha1.AnnotationRenew])
	late := max(0, time.Since(began)) // the clock stands, and the API server's does not
	if after := due.Sub(began); err != nil || after < 450*time.Second || after > 490*time.Second+late {
		t.Errorf("renewed after %s, want 4/5 of 600 s and at most %s more: %v", after, late, err)
	}
	writes := w.writes
	w.both(name)
	w.restart()
	w.both(name)
	if w.writes != writes || string(w.made(name).Data["token-0"]) != string(made.Data["token-0"]) {
		t.Errorf("%d writes though the tokens are good", w.writes-writes)
	}
	w.clock.SetTime(due.Add(-5 * time.Second))
	if res := w.send(name); res.RequeueAfter <= 0 || res.RequeueAfter > 5*time.Second || w.writes != writes {
		t.Errorf("before it is time: again after %s, %d writes", res.RequeueAfter, w.writes-writes)
	}
	w.clock.SetTime(due)
	w.both(name)
	next := w.made(name)
	if string(next.Data["token-0"]) == string(made.Data["token-0"]) || string(next.Data["token-1"]) == string(made.Data["token-1"]) {
		t.Error("the tokens are not renewed when it is time")
	}
	if err := w.raw.Delete(ctx, running); err != nil {
		t.Fatal(err)
	}
	w.take(name)
	if w.made(name) != nil || w.answer(name) != "False/Refused" {
		t.Errorf("the ShadowPod is gone, and its tokens are there: %s", w.answer(name))
	}
	if err := w.raw.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.both(name)
	if w.send(name); w.shadow(name) != nil || w.consumer.notes.count()+w.provider.notes.count() != 0 {
		t.Error("something is left of a pod that is gone")
	}
	w.await("the token dies with the pod", func() bool { return !w.review(next.Data["token-0"]).Authenticated })
	if n := w.told("NotReflected"); n != 0 {
		t.Errorf("%d events though all went well", n)
	}
}

// TestTokensDenied: nothing is minted unless the namespace says so and the pod expects it,
// and what was sent is taken back when it says no more.
func TestTokensDenied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod, name := w.podWithTokens(v1alpha1.TokensDeny)
	without := w.shadowPod(pod, false)
	none := func(when string) {
		t.Helper()
		w.both(name)
		if w.shadow(name) != nil || w.made(name) != nil || w.told("") != 0 {
			t.Errorf("%s: tokens are sent, or somebody is told", when)
		}
	}
	none("denied")
	w.turn(v1alpha1.TokensAllow)
	none("allowed, of a pod that was sent without")
	if err := w.raw.Delete(ctx, without); err != nil {
		t.Fatal(err)
	}
	w.shadowPod(pod, true)
	w.both(name)
	if w.made(name) == nil {
		t.Fatalf("allowed, and not there: %s", w.answer(name))
	}
	w.turn(v1alpha1.TokensDeny)
	w.send(name)
	w.take(name)
	none("denied again")
	w.turn(v1alpha1.TokensAllow)
	w.both(name)
	if w.made(name) == nil {
		t.Fatal("allowed again, and not there")
	}
	if err := w.raw.Delete(ctx, get(w, w.home, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})); err != nil {
		t.Fatal(err)
	}
	none("not offloaded any more")
}

// TestTokensOfBare: what home has sent without tokens gets none, whatever its provider says it expects.
func TestTokensOfBare(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod, name := w.podWithTokens(v1alpha1.TokensAllow)
	w.shadowPod(pod, true)
	pod.Annotations = map[string]string{v1alpha1.AnnotationTokens: "false"}
	w.update(pod)
	if w.both(name); w.minted > 0 || w.shadow(name) != nil {
		t.Errorf("%d tokens are minted for a pod that was sent without", w.minted)
	}
}

// TestTokensNotWritten: a renewal that the provider did not take is not one.
func TestTokensNotWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod, name := w.podWithTokens(v1alpha1.TokensAllow)
	w.shadowPod(pod, true)
	w.both(name)
	was := w.made(name)
	if was == nil {
		t.Fatalf("not made: %s", w.answer(name))
	}
	w.clock.Step(maxTokenAge)
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*v1alpha1.ShadowObject); ok && verb == "patch" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "shadowobjects"}, obj.GetName(), errors.New("changed meanwhile"))
		}
		return nil
	}
	if res := w.send(name); res.RequeueAfter <= 0 || res.RequeueAfter > soon {
		t.Errorf("again after %s", res.RequeueAfter)
	}
	w.fail = nil
	w.both(name)
	if string(w.made(name).Data["token-0"]) == string(was.Data["token-0"]) {
		t.Error("the tokens are taken for renewed, and are not")
	}
}

// TestTokensSpaced: however a provider answers, home does not mint without end; not even
// if what was sent is there one moment and gone the next.
func TestTokensSpaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod, name := w.podWithTokens(v1alpha1.TokensAllow)
	expects := w.shadowPod(pod, true)
	w.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*v1alpha1.ShadowObject); ok && verb == "create" {
			return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "shadowobjects"}, obj.GetName())
		}
		return nil
	}
	const each, most = 2, 6 // at once, after 1 s, 2 s, 4 s, 8 s and 16 s more
	for range 50 {
		w.send(name)
	}
	if n := w.minted; n > each*most {
		t.Errorf("%d tokens in 50 s, want %d at most", n, each*most)
	}
	if err := w.raw.Delete(ctx, expects); err != nil {
		t.Fatal(err)
	}
	w.send(name)
	w.shadowPod(pod, true)
	before := w.minted
	if w.send(name); w.minted != before {
		t.Error("minted at once when the ShadowPod was gone for a moment")
	}
	w.fail = nil
	w.clock.Step(triesMost)
	if w.both(name); w.made(name) == nil {
		t.Errorf("not made when the provider takes it: %s", w.answer(name))
	}
}

// TestTokensForbidden: who takes away the right to mint tokens is told so on the pod, once,
// and is asked ever more seldom, until the right is there.
func TestTokensForbidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod, name := w.podWithTokens(v1alpha1.TokensAllow)
	w.shadowPod(pod, true)
	w.fail = func(verb string, obj client.Object) error {
		if verb == "token" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts/token"}, obj.GetName(), errors.New("s3cret"))
		}
		return nil
	}
	told := func() int { return w.told("does not let Pelago ask for tokens of the pod's ServiceAccount") }
	for range 5 {
		if res := w.send(name); res.RequeueAfter > 2*rightsRetry || told() > 0 {
			t.Fatalf("told at once, or looked at after %s", res.RequeueAfter)
		}
		w.clock.Step(rightsRetry)
	}
	w.clock.Step(rightsTold)
	if w.send(name); told() != 1 {
		t.Error("not told once")
	}
	w.clock.Step(10 * rightsMost)
	if res := w.send(name); res.RequeueAfter < rightsMost/2 || res.RequeueAfter > 2*rightsMost {
		t.Errorf("looked at after %s", res.RequeueAfter)
	}
	w.fail = nil
	if w.both(name); w.made(name) == nil {
		t.Error("not made though it is allowed now")
	}
}

// TestTokensImpossible: why a pod gets no token is told on the pod.
func TestTokensImpossible(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod, name := w.podWithTokens(v1alpha1.TokensAllow)
	w.shadowPod(pod, true)
	if err := w.raw.Delete(ctx, &corev1.ServiceAccount{ObjectMeta: objectMeta(w.home, "robot")}); err != nil {
		t.Fatal(err)
	}
	w.both(name)
	w.both(name)
	if n := w.told("no ServiceAccount robot"); n != 1 || w.shadow(name) != nil {
		t.Errorf("%d events", n)
	}
}

func TestRenewal(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for life, want := range map[time.Duration]time.Duration{time.Hour: 48 * time.Minute, 48 * time.Hour: 24 * time.Hour, -time.Hour: minTokenAge} {
		if got := renewal(now, now.Add(life)).Sub(now); got != want {
			t.Errorf("of %s after %s, want %s", life, got, want)
		}
	}
	soon, later := now.Add(time.Minute), now.Add(time.Hour)
	for _, c := range []struct {
		reason, written string
		known, want     time.Time
	}{
		{"as it was written", later.Format(time.RFC3339), time.Time{}, later},
		{"the mirror is behind", soon.Format(time.RFC3339), later, later},
		{"nothing was written", "", time.Time{}, time.Time{}},
		{"nonsense was", "never", soon, soon},
		{"the provider has put it off", now.AddDate(10, 0, 0).Format(time.RFC3339), time.Time{}, time.Time{}},
	} {
		s := &v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationRenew: c.written}}}
		if got := renewalOf(s, c.known, now); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
}

// TestMisplaced: tokens are made under their name only, and only for a pod that is there.
func TestMisplaced(t *testing.T) {
	tokens, wrong := content.EncodeTokens(map[string][]byte{"token-0": []byte("s3cret")})
	if wrong != "" {
		t.Fatal(wrong)
	}
	plain := text("Opaque", "a", []byte("s3cret"))
	const name = "pelago-token-7b0d9c36-6d0f-4b0e-9a58-3f1d8e7c2a10"
	for _, c := range []struct {
		reason, name, text string
		runs, made         bool
	}{
		{"of a pod that is there", name, tokens, true, true},
		{"of one that is not", name, tokens, false, false},
		{"a plain one by that name", name, plain, true, false},
		{"tokens by another name", "login", tokens, true, false},
		{"a plain one", "login", plain, false, true},
	} {
		kind, _ := kindOf(kindSecret)
		d := judge(claim{shadow: shadowOf(v1alpha1.HomeObject{Kind: kindSecret, Namespace: "shop", Name: c.name}, c.text), tenant: "rome", kind: kind, place: place{name: "shop-rome"}, runs: c.runs})
		if d.create != c.made || strings.Contains(d.message, "s3cret") {
			t.Errorf("%s: made %t, %s", c.reason, d.create, d.message)
		}
	}
}

// TestTokenReferences: a pod refers to its own tokens, and to no other's.
func TestTokenReferences(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}, Spec: corev1.PodSpec{
		NodeName: "milan", Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: v1alpha1.TokenSecret("v")}}}}
	if got := references(pod); len(got) != 0 {
		t.Errorf("refers to %v", got)
	}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}}}}}}
	if got := references(pod); len(got) != 1 || got[0].name != v1alpha1.TokenSecret("u") {
		t.Errorf("refers to %v", got)
	}
}
