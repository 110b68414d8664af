package consumer

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const uid = "7b0d9c36-6d0f-4b0e-9a58-3f1d8e7c2a10"

// given is a pod that has just been bound, and a provider that answers.
func given(edit ...func(*facts)) facts {
	p := template("shop", "web", "milan")
	p.UID, p.Status.Phase = uid, corev1.PodPending
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	grace := int64(30)
	p.Spec.TerminationGracePeriodSeconds = &grace
	f := facts{
		pod: p, peering: "milan", now: noon, offloaded: true, mapped: true, link: up, since: noon.Add(-time.Hour), elsewhere: true,
		at: shadow.Place{Node: "milan", Request: "default", Address: "192.0.2.7"},
	}
	for _, e := range edit {
		e(&f)
	}
	return f
}

// carried gives the pod its ShadowPod, as the mirror shows it.
func carried(f *facts) {
	s, _, err := shadow.Forge(f.pod, f.at)
	if err != nil {
		panic(err)
	}
	if err := mirrored(s); err != nil {
		panic(err)
	}
	f.shadow, f.memory.seen = s, true
}

// carriedEarlier is carried by a build that wrote the API's defaults too.
func carriedEarlier(f *facts) {
	s, _, err := shadow.Forge(f.pod, f.at)
	spec := corev1.PodSpec{}
	if err := errors.Join(err, json.Unmarshal([]byte(s.Spec.Pod), &spec)); err != nil {
		panic(err)
	}
	spec.RestartPolicy, spec.TerminationGracePeriodSeconds = f.pod.Spec.RestartPolicy, f.pod.Spec.TerminationGracePeriodSeconds
	text, err := json.Marshal(spec)
	if s.Spec.Pod = string(text); errors.Join(err, mirrored(s)) != nil {
		panic(err)
	}
	f.shadow, f.memory.seen = s, true
}

// said lets the provider report a status.
func said(status *corev1.PodStatus) func(*facts) {
	return func(f *facts) {
		f.shadow.Status.Pod, _ = shadow.Report(status, 0, "")
		f.shadow.Status.Phase = string(status.Phase)
		f.shadow.Status.Conditions = []metav1.Condition{accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, "")}
	}
}

func answered(reason string) func(*facts) {
	return func(f *facts) {
		f.shadow.Status.Conditions = []metav1.Condition{accepted(metav1.ConditionFalse, reason, "because")}
	}
}

func deleted(f *facts) {
	grace := *f.pod.Spec.TerminationGracePeriodSeconds
	at := metav1.NewTime(noon.Add(time.Duration(grace) * time.Second))
	f.pod.DeletionTimestamp, f.pod.DeletionGracePeriodSeconds = &at, &grace
}

func of(kind string) func(*facts) { return func(f *facts) { owned(kind)(f.pod) } }
func linked(l link) func(*facts)  { return func(f *facts) { f.link = l } }
func tried(d time.Duration) func(*facts) {
	return func(f *facts) { f.memory.tried = noon.Add(-d) }
}
func seen(f *facts)                   { f.memory.seen = true }
func leaves(f *facts)                 { f.leaving = true }
func once(f *facts)                   { f.pod.Spec.RestartPolicy = corev1.RestartPolicyNever }
func alive(f *facts)                  { f.pod.Status = *running() }
func at(d time.Duration) func(*facts) { return func(f *facts) { f.since = noon.Add(-d) } }
func unlike(f *facts)                 { f.pod.Spec.HostNetwork = true }
func cornered(f *facts)               { f.elsewhere, f.until = false, noon.Add(time.Minute) }
func outside(f *facts)                { f.offloaded = false }
func unplaced(f *facts)               { f.mapped = false }
func unfollowed(f *facts)             { f.shadow.Status.Conditions[0].Message = "resources: no" }
func intolerant(f *facts)             { f.pod.Spec.Tolerations = nil }
func everything(f *facts)             { tolerant(f.pod) }
func closes(f *facts)                 { f.closing = &corev1.Namespace{} }
func told1(d time.Duration) func(*facts) {
	return func(f *facts) { f.shadow.DeletionTimestamp, f.memory.told = f.pod.DeletionTimestamp, noon.Add(-d) }
}
func deadlined(f *facts) { f.pod.Spec.ActiveDeadlineSeconds = new(int64) }
func ends(f *facts) {
	f.pod.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicy)
}
func finished(p corev1.PodPhase) func(*facts) {
	return func(f *facts) { f.pod.Status = *ended(p, 0) }
}

// sum is what a plan does, in words.
func sum(p plan) string {
	var words []string
	say := func(yes bool, word string) {
		if yes {
			words = append(words, word)
		}
	}
	say(p.gone, "confirm")
	if p.status != nil {
		word := "status=" + string(p.status.Phase)
		if p.status.Reason != "" {
			word += "/" + p.status.Reason
		}
		words = append(words, word)
	}
	say(p.create != nil, "create")
	say(p.change != nil, "change")
	say(p.grace != nil, "grace")
	say(p.end, "end")
	say(p.bury, "bury")
	say(p.home != nil, "evict")
	say(p.refused != nil, "tell")
	say(p.rejected != nil, "reject")
	say(p.begins, "begin")
	say(p.welcome, "welcome")
	if p.again != 0 {
		words = append(words, "again "+p.again.String())
	}
	return strings.Join(words, " ")
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		reason string
		facts  facts
		want   string
	}{
		{"new", given(), "create again 10s"},
		{"new, of an owner", given(of("ReplicaSet")), "create again 10s"},
		{"written a moment ago", given(func(f *facts) { f.memory.created = noon.Add(-time.Second) }), "again 10s"},
		{"written long ago and not shown", given(func(f *facts) { f.memory.created = noon.Add(-behind) }), "create again 10s"},
		{"no connection", given(linked(unknown)), ""},
		{"not read yet", given(linked(blind)), ""},
		{"away before it began", given(linked(away)), ""},
		{"refusing in something", given(linked(refusing)), "create again 10s"},
		{"not offloaded", given(outside), "status=Pending/Refused tell"},
		{"not offloaded, of a DaemonSet", given(outside, of("DaemonSet")), ""},
		{"offloaded, of a DaemonSet that tolerates everything", given(everything, of("DaemonSet")), ""},
		{"offloaded, of a DaemonSet that tolerates everything, answered already", given(everything, alive, of("DaemonSet")), ""},
		{"offloaded, of a DaemonSet", given(of("DaemonSet")), "create again 10s"},
		{"not admitted", given(intolerant), "status=Pending/Refused tell"},
		{"new, and its namespace has no place there yet", given(unplaced, of("ReplicaSet"), func(f *facts) {
			f.pod.CreationTimestamp = metav1.NewTime(noon.Add(-patience / 4))
		}), "status=Pending/NamespaceMissing again 45s"},
		{"made by a clock ahead of ours, no place yet", given(unplaced, func(f *facts) {
			f.pod.CreationTimestamp = metav1.NewTime(noon.Add(time.Hour))
		}), "status=Pending/NamespaceMissing again 1m0s"},
		{"its namespace has no place there", given(unplaced, of("ReplicaSet")), "status=Pending/NamespaceMissing evict tell"},
		{"its namespace has no place there, bare", given(unplaced), "status=Pending/NamespaceMissing tell"},
		{"its namespace has no place there, of a DaemonSet", given(unplaced, of("DaemonSet")), "status=Pending/NamespaceMissing tell"},
		{"its namespace has no place anywhere", given(unplaced, of("ReplicaSet"), cornered), "status=Pending/NamespaceMissing tell again 1m0s"},
		{"nothing like it is forged, bare", given(unlike), "status=Pending/Refused tell"},
		{"nothing like it is forged, owned", given(unlike, of("ReplicaSet")), "status=Pending/Refused evict tell"},

		{"carried, nothing said", given(carried), ""},
		{"carried, runs", given(carried, said(running())), "status=Running begin"},
		{"carried, runs, known", given(carried, said(running()), func(f *facts) { f.pod.Status = *decide(*f).status }), ""},
		{"carried, ended", given(carried, said(ended(corev1.PodSucceeded, 0))), "status=Succeeded"},
		{"carried, nonsense said", given(carried, func(f *facts) { f.shadow.Status.Pod = "[" }), ""},
		{"carried, an unknown phase", given(carried, said(running()), func(f *facts) { f.shadow.Status.Phase = "Flying" }), ""},
		{"carried, changed at home", given(carried, func(f *facts) { f.pod.Labels["a"] = "b" }), "change"},
		{"carried, changed into what is refused", given(carried, unlike, said(running())), "status=Running reject begin"},
		{"carried, changed after its end", given(carried, said(ended(corev1.PodSucceeded, 0)), func(f *facts) { f.pod.Labels["a"] = "b" }), "status=Succeeded"},
		{"carried, its namespace has no place there any more", given(carried, unplaced, said(running())), "status=Running begin"},
		{"runs, follows in part", given(carried, said(running()), unfollowed), "status=Running reject begin"},
		{"runs, follows in part, known", given(carried, said(running()), unfollowed, func(f *facts) { f.pod.Status = *decide(*f).status }), "reject"},
		{"runs, follows in part, and has been changed since", given(carried, said(running()), unfollowed, func(f *facts) { f.pod.Labels["a"] = "b" }), "status=Running change begin"},
		{"carried, being deleted there", given(carried, said(running()), func(f *facts) {
			deleted(f)
			f.shadow.DeletionTimestamp, f.pod.DeletionTimestamp = f.pod.DeletionTimestamp, nil
		}), "status=Running begin"},
		{"runs, away", given(alive, carried, linked(away)), "status=Running"},
		{"runs, away, known", given(alive, carried, linked(away), func(f *facts) { f.pod.Status = *decide(*f).status }), ""},
		{"runs, refusing", given(alive, carried, said(running()), linked(refusing)), "status=Running"},

		{"refused, bare", given(carried, answered("Unschedulable")), "status=Pending/Unschedulable tell"},
		{"refused, owned", given(carried, answered("Unschedulable"), of("ReplicaSet")), "status=Pending/Unschedulable evict tell"},
		{"refused, of a Job", given(carried, answered("Drained"), of("Job")), "status=Pending/Drained evict tell"},
		{"refused, of a DaemonSet", given(carried, answered("Drained"), of("DaemonSet")), "status=Pending/Drained tell"},
		{"refused, and every place refuses", given(carried, answered("LimitExceeded"), of("ReplicaSet"), cornered), "status=Pending/LimitExceeded tell again 1m0s"},
		{"refused, and there is no other place", given(carried, answered("Drained"), of("ReplicaSet"), func(f *facts) { f.elsewhere = false }), "status=Pending/Drained tell"},
		{"refused and known, and another place appears", given(carried, answered("LimitExceeded"), of("ReplicaSet"), cornered, func(f *facts) {
			f.pod.Status, f.elsewhere = *decide(*f).status, true
		}), "evict tell"},
		{"nothing like it is forged, and there is no other place", given(unlike, of("ReplicaSet"), cornered), "status=Pending/Refused tell again 1m0s"},
		{"refused, bare, and there is no other place", given(carried, answered("Unschedulable"), cornered), "status=Pending/Unschedulable tell"},
		{"refused for an unknown reason", given(carried, answered("Whatever"), of("ReplicaSet")), "status=Pending/Whatever evict tell"},
		{"waiting for a namespace", given(carried, answered("NamespaceMissing"), of("ReplicaSet")), "status=Pending/NamespaceMissing"},
		{"waiting for a name", given(carried, answered("NameTaken"), of("StatefulSet")), "status=Pending/NameTaken"},
		{"carried by an earlier build", given(carriedEarlier, said(running())), "status=Running begin"},
		{"carried by an earlier build, and changed", given(carriedEarlier, said(running()), func(f *facts) { f.pod.Labels["a"] = "b" }), "status=Running change begin"},
		{"refused before it was changed", given(carried, answered("Refused"), of("ReplicaSet"), func(f *facts) { f.pod.Labels["a"] = "b" }), "change"},
		{"refused in an earlier generation", given(carried, answered("Refused"), of("ReplicaSet"), func(f *facts) {
			f.shadow.Generation = 2
			f.shadow.Status.Conditions[0].ObservedGeneration = 1
		}), ""},
		{"refused, but it has ended", given(carried, said(ended(corev1.PodFailed, 1)), answered("Drained"), of("ReplicaSet")), "status=Failed"},

		{"removed by the provider", given(alive, seen), "confirm status=Failed/RemovedByProvider"},
		{"removed while this program was away", given(alive), "confirm status=Failed/RemovedByProvider"},
		{"ended here, as its namespace has no place there any more", given(alive, seen, unplaced), "confirm status=Failed/NotOffloaded"},
		{"ended here, and written", given(finished(corev1.PodFailed), of("ReplicaSet"), func(f *facts) { f.pod.Status.Reason = reasonUnmapped }), "evict"},
		{"removed before it ran", given(seen), "confirm status=Failed/RemovedByProvider"},
		{"runs, and its owner's were sent home", given(carried, alive, said(running()), tried(20*time.Second)), "status=Running again 40s"},
		{"has run for a minute, and its owner's were sent home", given(carried, alive, said(running()), tried(time.Minute)), "status=Running welcome"},
		{"began by a clock that was ahead", given(carried, alive, said(running()), tried(-time.Hour)), "status=Running again 1m0s"},
		{"removed, and written", given(finished(corev1.PodFailed), of("ReplicaSet"), func(f *facts) { f.pod.Status.Reason = reasonRemoved }), "evict"},
		{"removed, and written, of a Job", given(finished(corev1.PodFailed), of("Job"), func(f *facts) { f.pod.Status.Reason = reasonRemoved }), ""},
		{"always restarted, and ended there", given(finished(corev1.PodFailed), of("ReplicaSet"), carried, said(ended(corev1.PodFailed, 1))), "evict"},
		{"always restarted, and ended there, of a StatefulSet", given(finished(corev1.PodSucceeded), of("StatefulSet"), carried, said(ended(corev1.PodSucceeded, 0))), "evict"},
		{"always restarted, and ended there, of nobody", given(finished(corev1.PodFailed), carried, said(ended(corev1.PodFailed, 1))), ""},
		{"always restarted, and ended there, of a Job", given(finished(corev1.PodFailed), of("Job"), carried, said(ended(corev1.PodFailed, 1))), ""},
		{"runs once, and ended there", given(finished(corev1.PodFailed), of("ReplicaSet"), once, carried, said(ended(corev1.PodFailed, 1))), ""},
		{"with a deadline, and ended there", given(finished(corev1.PodFailed), of("ReplicaSet"), deadlined, carried, said(ended(corev1.PodFailed, 1))), ""},
		{"with a container that ends, and ended there", given(finished(corev1.PodFailed), of("ReplicaSet"), ends, carried, said(ended(corev1.PodFailed, 1))), ""},
		{"always restarted, and ended here", given(finished(corev1.PodFailed), of("ReplicaSet"), carried, said(running())), ""},
		{"finished", given(finished(corev1.PodSucceeded), carried, said(running())), ""},
		{"finished, away", given(finished(corev1.PodFailed), carried, linked(away)), ""},

		{"deleted", given(alive, carried, deleted), "end"},
		{"deleted, ending there", given(alive, carried, deleted, told1(0)), "again 1m30s"},
		{"deleted, not ended there in time", given(alive, carried, deleted, told1(90*time.Second)), "status=Running/Terminating"},
		{"deleted with its namespace, not ended there in time", given(alive, carried, deleted, closes, told1(2*time.Minute)), "status=Running/Terminating again 9m30s"},
		{"deleted with its namespace, not ended there for long", given(alive, carried, deleted, closes, told1(12*time.Minute)), "bury"},
		{"deleted with its namespace, not ended there, just back", given(alive, carried, deleted, closes, told1(12*time.Minute), at(time.Second)), "again 1m29s"},
		{"deleted, not ended there for long", given(alive, carried, deleted, told1(time.Hour)), "status=Running/Terminating"},
		{"deleted, with another grace", given(alive, carried, deleted, func(f *facts) { *f.pod.DeletionGracePeriodSeconds = 1 }), "grace end"},
		{"deleted, gone there", given(alive, seen, deleted), "bury"},
		{"deleted, nothing known", given(deleted), "end again 10s"},
		{"deleted, nothing known, ran", given(alive, deleted), "end again 10s"},
		{"deleted, never forged", given(unlike, deleted), "bury"},
		{"deleted, not read", given(alive, deleted, linked(blind)), "end again 10s"},
		{"deleted, away", given(alive, carried, deleted, linked(away)), "status=Running"},
		{"deleted, away, leaving since long", given(alive, carried, deleted, linked(away), leaves), "bury"},
		{"deleted, away for half a minute, leaving", given(alive, carried, deleted, linked(away), leaves, at(30*time.Second)), "status=Running again 30s"},
		{"deleted just now, no connection, leaving", given(alive, deleted, linked(unknown), leaves), "again 1m0s"},
		{"deleted just now, not read yet, leaving", given(alive, deleted, linked(blind), leaves), "end again 10s"},
		{"deleted, answers, leaving", given(alive, carried, deleted, leaves), "end"},
		{"deleted, refusing, leaving for long", given(alive, carried, deleted, linked(refusing), leaves), "bury"},
		{"deleted, refusing, leaving", given(alive, carried, deleted, linked(refusing), leaves, at(time.Second)), "end again 59s"},
		{"deleted by force, kept by a finalizer", given(alive, seen, deleted, func(f *facts) {
			*f.pod.DeletionGracePeriodSeconds, f.pod.Finalizers = 0, []string{"example.org/look"}
		}), ""},
		{"deleted by force, and cut off half way", given(alive, seen, deleted, func(f *facts) { *f.pod.DeletionGracePeriodSeconds = 0 }), "bury"},
		{"deleted by force, by us a moment ago", given(alive, seen, deleted, func(f *facts) {
			*f.pod.DeletionGracePeriodSeconds, f.memory.buried = 0, f.now.Add(-500*time.Millisecond)
		}), "again 1.5s"},
		{"deleted by force, by us a while ago", given(alive, seen, deleted, func(f *facts) {
			*f.pod.DeletionGracePeriodSeconds, f.memory.buried = 0, f.now.Add(-buryAgain)
		}), "bury"},
		{"deleted, runs once, finished there", given(alive, once, carried, said(ended(corev1.PodSucceeded, 0)), deleted), "status=Succeeded end"},
		{"deleted, runs always, finished there", given(alive, carried, said(ended(corev1.PodFailed, 0)), deleted), "end"},
		{"deleted, runs once, gone there", given(alive, once, seen, deleted), "status=Failed bury"},
		{"deleted, runs once, finished here", given(finished(corev1.PodSucceeded), once, seen, deleted), "bury"},
	} {
		before := c.facts.pod.DeepCopy()
		if got := sum(decide(c.facts)); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
		if !reflect.DeepEqual(before, c.facts.pod) {
			t.Errorf("%s: the pod was changed", c.reason)
		}
	}
}

// TestStatusSettles holds that what was written is what is wanted next, whatever a
// provider says: no status is written for ever.
func TestStatusSettles(t *testing.T) {
	ready := func(f *facts) { said(running())(f); answered("Drained")(f) }
	for reason, f := range map[string]facts{
		"refused, and said to be ready": given(carried, ready),
		"away":                          given(alive, carried, linked(away)),
		"waiting":                       given(carried, answered("NamespaceMissing")),
		"not offloaded":                 given(outside),
		"strange texts":                 given(carried, answered("\x00\xff\n"+strings.Repeat("é", 5000))),
		"an odd status":                 given(carried, said(&corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "other"}}})),
	} {
		p := decide(f)
		if p.status == nil {
			t.Errorf("%s: nothing to write", reason)
			continue
		}
		text, err := json.Marshal(p.status) // as the API server would store it
		if err != nil {
			t.Fatal(err)
		}
		stored := corev1.PodStatus{}
		if err := json.Unmarshal(text, &stored); err != nil {
			t.Fatal(err)
		}
		f.pod.Status = stored
		f.now = f.now.Add(time.Hour)
		if again := decide(f); again.status != nil {
			t.Errorf("%s: written again\n%s", reason, cmp.Diff(stored, *again.status))
		}
		if len(stored.Reason) > 64 || len(stored.Message) > 1024 {
			t.Errorf("%s: a text of %d and %d bytes", reason, len(stored.Reason), len(stored.Message))
		}
	}
}

func TestNote(t *testing.T) {
	refusal := func(owner string, count int32, until time.Time) v1alpha1.Refusal {
		return v1alpha1.Refusal{Owner: owner, Node: "milan", Count: count, Until: metav1.NewTime(until)}
	}
	ahead, _ := note(nil, refusal("a", 0, noon), noon.Add(time.Second), noon)
	if _, again := note(ahead, refusal("a", 0, noon), noon.Add(time.Second), noon); again {
		t.Error("a pod that was made by a clock ahead of ours counts twice")
	}
	for _, c := range []struct {
		reason  string
		list    []v1alpha1.Refusal
		made    time.Duration // before now
		count   int32
		until   time.Duration
		written bool
	}{
		{"the first", nil, time.Second, 1, time.Minute, true},
		{"of the same round", []v1alpha1.Refusal{refusal("a", 1, noon.Add(time.Minute-time.Second))}, 2 * time.Second, 1, time.Minute - time.Second, false},
		{"made after the last", []v1alpha1.Refusal{refusal("a", 1, noon.Add(-time.Second))}, time.Second, 2, 2 * time.Minute, true},
		{"of the same round, held back until after its end", []v1alpha1.Refusal{refusal("a", 3, noon.Add(-time.Second))}, time.Hour, 3, 4 * time.Minute, true},
		{"for the seventh time", []v1alpha1.Refusal{refusal("a", 6, noon.Add(-time.Second))}, time.Second, 7, time.Hour, true},
		{"a count out of all bounds", []v1alpha1.Refusal{refusal("a", 1<<30, noon.Add(-time.Second))}, time.Second, 1<<30 + 1, time.Hour, true},
		{"long ago", []v1alpha1.Refusal{refusal("a", 6, noon.Add(-remembered))}, time.Second, 1, time.Minute, true},
		{"another owner", []v1alpha1.Refusal{refusal("b", 6, noon)}, time.Second, 1, time.Minute, true},
	} {
		one := v1alpha1.Refusal{Owner: "a", Node: "milan", Reason: "Unschedulable"}
		list, written := note(slices.Clone(c.list), one, noon.Add(-c.made), noon)
		if got := list[0]; written != c.written || got.Owner != "a" || got.Count != c.count || !got.Until.Time.Equal(noon.Add(c.until)) {
			t.Errorf("%s: %v, written %v", c.reason, got, written)
		}
	}
	var list []v1alpha1.Refusal
	for i := range 1000 {
		one := v1alpha1.Refusal{Owner: string(rune('a' + i)), Node: "milan"}
		list, _ = note(list, one, noon, noon)
	}
	if len(list) != maxRefusals || list[0].Owner != string(rune('a'+999)) {
		t.Errorf("%d refusals are remembered", len(list))
	}
	list, _ = note(list, v1alpha1.Refusal{Owner: "late", Node: "milan"}, noon, noon.Add(4*time.Hour))
	if len(list) != 1 {
		t.Errorf("%d refusals are remembered after hours", len(list))
	}
}

func TestTrim(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"pod": "{}", "request": "default"}}}
	trim(u)
	asked := map[string]any{annotationAsked: shadow.Hash(v1alpha1.ShadowPodSpec{Pod: "{}"})}
	if diff := cmp.Diff(map[string]any{"spec": map[string]any{"request": "default"}, "metadata": map[string]any{"annotations": asked}}, u.Object); diff != "" {
		t.Error(diff)
	}
	trim(u) // there is no pod any more, and nothing new to keep
	if got := u.GetAnnotations()[annotationAsked]; got != asked[annotationAsked] {
		t.Errorf("trimmed again, the hash is %q", got)
	}
	for _, odd := range []map[string]any{nil, {}, {"spec": 7}, {"spec": nil}} {
		trim(&unstructured.Unstructured{Object: odd})
	}
}

func TestLedger(t *testing.T) {
	m := newMeter()
	l := newLedger(m.pods)
	key := types.NamespacedName{Namespace: "shop", Name: "web-0"}
	l.created(key, "1", "milan", noon)
	l.saw(key, "1", "milan")
	l.saw(key, "1", "milan")
	if e := l.of(key, "1"); !e.seen || !e.created.Equal(noon) || l.count["milan"] != 1 {
		t.Errorf("%+v, %v", e, l.count)
	}
	l.created(key, "2", "athens", noon)
	if e := l.of(key, "2"); e.seen || l.of(key, "1").seen || l.count["milan"] != 0 || l.count["athens"] != 1 {
		t.Errorf("a new pod of the name: %+v, %v", e, l.count)
	}
	l.ended(key, "2", "athens")
	if !l.of(key, "2").ended {
		t.Error("its end is not remembered")
	}
	l.drop(key)
	l.drop(key)
	if len(l.entries) != 0 || len(l.count) != 0 {
		t.Errorf("%v, %v", l.entries, l.count)
	}
}

// FuzzStatus holds that nothing a provider says of a pod breaks or floods its home.
func FuzzStatus(f *testing.F) {
	f.Add(`{"phase":"Running"}`, "Running", "Unschedulable", "no room", true)
	f.Add(`{"conditions":[{"type":"Ready","status":"True"}]}`, "", "", "", false)
	f.Add(`[`, "Flying", "\x00", "\xff", true)
	f.Fuzz(func(t *testing.T, pod, phase, reason, message string, refuse bool) {
		g := given(carried)
		g.shadow.Status.Pod, g.shadow.Status.Phase = pod, phase
		if refuse {
			g.shadow.Status.Conditions = []metav1.Condition{accepted(metav1.ConditionFalse, reason, message)}
		}
		p := decide(g)
		if p.status == nil {
			return
		}
		if len(p.status.Conditions) > 64 || len(p.status.Message) > 4096 {
			t.Errorf("%d conditions, a message of %d bytes", len(p.status.Conditions), len(p.status.Message))
		}
		if _, err := patchOf(g.pod, *p.status, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestSince: what was refused before a node was made anew does not count when it refuses again.
func TestSince(t *testing.T) {
	one := v1alpha1.Refusal{Owner: "web", Node: "milan"}
	list := []v1alpha1.Refusal{
		{Owner: "web", Node: "milan", Count: 3, Until: metav1.NewTime(noon.Add(v1alpha1.AvoidFor(3)))},
		{Owner: "web", Node: "oslo", Count: 1, Until: metav1.NewTime(noon.Add(v1alpha1.AvoidFor(1)))},
		{Owner: "db", Node: "milan", Count: 1, Until: metav1.NewTime(noon.Add(v1alpha1.AvoidFor(1)))},
	}
	for _, c := range []struct {
		reason      string
		made        time.Time
		left, count int
	}{
		{"the node is older", noon.Add(-time.Second), 3, 4},
		{"of the same second", noon, 3, 4},
		{"the node is newer", noon.Add(time.Second), 2, 1},
	} {
		left := since(list, one, metav1.NewTime(c.made))
		if len(left) != c.left {
			t.Errorf("%s: %d are left, want %d", c.reason, len(left), c.left)
		}
		later := noon.Add(time.Hour)
		all, _ := note(left, one, later, later)
		if len(all) == 0 || all[0].Count != int32(c.count) {
			t.Errorf("%s: refused again it is %+v, want the count %d", c.reason, all, c.count)
		}
	}
}
