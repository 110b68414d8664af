package torture

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// seen is a world with these in it. UIDs of pods are their own, or of their place.
type seen struct {
	home, remote []Pod
	jobs         []JobState
	secrets      []Held
	configs      []Held
	services     []Service
	slices       []Slice
	homeSlices   []Slice
	at           time.Duration // since the beginning
	shadows      []Shadow
	namespaces   []string // at the provider
}

func (s seen) world() *World {
	w := NewWorld()
	w.Now = time.Unix(1e9, 0).Add(s.at)
	for _, p := range s.home {
		w.Home.Pods[p.UID] = p
	}
	for _, p := range s.remote {
		w.Remote.Pods[p.UID] = p
	}
	for _, j := range s.jobs {
		w.Home.Jobs[j.Namespace+j.Name] = j
	}
	for _, each := range s.secrets {
		w.Remote.Secrets[each.Namespace+each.Name] = each
	}
	for _, each := range s.configs {
		w.Remote.Configs[each.Namespace+each.Name] = each
	}
	for _, each := range s.services {
		w.Remote.Services[each.Namespace+each.Name] = each
	}
	for i, each := range s.slices {
		w.Remote.Slices[fmt.Sprint(i)] = each
	}
	for i, each := range s.homeSlices {
		w.Home.Slices[fmt.Sprint(i)] = each
	}
	for _, each := range s.shadows {
		w.Remote.Shadows[each.Namespace+each.Kind+each.Name] = each
	}
	for _, name := range s.namespaces {
		w.Remote.Namespaces[name] = name
	}
	return w
}

// homePod and remotePod are a pod of keep on the virtual node, and its twin.
func homePod(uid, app string, change ...func(*Pod)) Pod {
	p := Pod{UID: uid, Namespace: Keep, Name: app + "-0", Place: Keep, App: app, Tier: "0", Node: Provider, Phase: "Running", Ready: true, Live: true}
	for _, c := range change {
		c(&p)
	}
	return p
}

func remotePod(uid, homeUID, app string, change ...func(*Pod)) Pod {
	p := homePod(uid, app, change...)
	p.HomeUID = homeUID
	if p.Namespace == Keep {
		p.Namespace = Mapped(Keep)
	}
	if p.Node == Provider {
		p.Node = "milan-1"
	}
	return p
}

func succeeded(p *Pod) { p.Phase, p.Live, p.Ready = phaseSucceeded, false, false }
func counted(p *Pod)   { p.Counted = true }
func deleting(p *Pod)  { p.Deleting = true }
func unique(p *Pod)    { p.Unique = true }
func dead(p *Pod)      { p.Live = false }
func evicted(p *Pod)   { p.Evicted = true }
func atHome(p *Pod)    { p.Node = "rome-1" }
func in(namespace string) func(*Pod) {
	return func(p *Pod) { p.Namespace = namespace }
}
func of(place string) func(*Pod) { return func(p *Pod) { p.Place, p.Namespace = place, place } }

const tenant = "pelago-tenant-rome"

// TestNever shows each rule worlds, one after the other: it must speak at the last one,
// or never.
func TestNever(t *testing.T) {
	value := func(place, secret string) []Canary { return []Canary{{place, secret, "1"}} }
	login, settings := []Held{{"keep-rome", Login, value(Keep, Login)}}, []Held{{"keep-rome", Settings, value(Keep, Settings)}}
	pods := []Pod{homePod("a", "web")}
	for _, c := range []struct {
		reason string
		worlds []seen
		want   string // part of the violation in the last world, empty for none in any
	}{
		{"two pods of a job succeed, one after the other", []seen{
			{home: []Pod{homePod("a", "job-1", counted, succeeded)}}, {home: []Pod{homePod("b", "job-1", counted, succeeded)}}}, "job-1: job-1-0 is the pod number 2"},
		{"one fails, one succeeds and is seen twice", []seen{
			{home: []Pod{homePod("a", "job-1", counted, func(p *Pod) { p.Phase = phaseFailed })}},
			{home: []Pod{homePod("b", "job-1", counted, succeeded)}}, {home: []Pod{homePod("b", "job-1", counted, succeeded)}}}, ""},
		{"one succeeds at the provider, is gone before home knows, and another one succeeds", []seen{
			{home: []Pod{homePod("a", "job-1", counted)}, remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}},
			{home: []Pod{homePod("a", "job-1", counted)}, remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}, at: 10 * time.Second}, {at: 20 * time.Second},
			{home: []Pod{homePod("b", "job-1", counted, atHome, succeeded)}, at: 30 * time.Second}}, "keep/job-1: job-1-0 is the pod number 2"},
		{"both succeed at the provider, and home knows of neither", []seen{
			{remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}}, {remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}, at: 10 * time.Second},
			{remote: []Pod{remotePod("y", "b", "job-1", counted, succeeded)}, at: 20 * time.Second},
			{remote: []Pod{remotePod("y", "b", "job-1", counted, succeeded)}, at: 30 * time.Second}}, "keep/job-1: job-1-0 is the pod number 2"},
		{"one succeeds a moment before it is deleted, so it may have been lost", []seen{
			{remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}}, {remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded, deleting)}, at: 2 * time.Second},
			{remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded, deleting)}, at: 10 * time.Second}, {home: []Pod{homePod("b", "job-1", counted, succeeded)}, at: 30 * time.Second}}, ""},
		{"one succeeds at the provider, and then home knows", []seen{
			{home: []Pod{homePod("a", "job-1", counted)}, remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}},
			{home: []Pod{homePod("a", "job-1", counted, succeeded)}, remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}, at: 10 * time.Second}}, ""},
		{"one ends well as it is deleted, which may be for that, and another one succeeds", []seen{
			{remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded, deleting)}}, {home: []Pod{homePod("b", "job-1", counted, succeeded)}}}, ""},
		{"two jobs", []seen{{home: []Pod{homePod("a", "job-1", counted, succeeded), homePod("b", "job-2", counted, succeeded)}}}, ""},
		{"the job itself counts two", []seen{{jobs: []JobState{{Namespace: Keep, Name: "job-1", Succeeded: 2}}}}, "counts 2"},
		{"the job itself counts one", []seen{{jobs: []JobState{{Namespace: Keep, Name: "job-1", Succeeded: 1}}}}, ""},

		{"what succeeded at the provider is there again", []seen{
			{remote: []Pod{remotePod("x", "a", "job-1", counted, succeeded)}}, {}, {remote: []Pod{remotePod("y", "a", "job-1", counted)}}}, "is there again, as y"},
		{"it succeeded while it was being deleted, so it was lost", []seen{
			{remote: []Pod{remotePod("x", "a", "job-1", succeeded, deleting)}}, {remote: []Pod{remotePod("y", "a", "job-1")}}}, ""},
		{"it was made again while it ran", []seen{
			{remote: []Pod{remotePod("x", "a", "web")}}, {remote: []Pod{remotePod("y", "a", "web")}}}, ""},
		{"another home pod of the same name", []seen{
			{remote: []Pod{remotePod("x", "a", "job-1", succeeded)}}, {remote: []Pod{remotePod("y", "b", "job-1")}}}, ""},
		{"a shadow pod forgets how it ended", []seen{
			{shadows: []Shadow{{Namespace: tenant, Name: "a", HomePlace: Keep, Phase: phaseFailed}}},
			{shadows: []Shadow{{Namespace: tenant, Name: "a", HomePlace: Keep, Phase: "Running"}}}}, `was Failed and is "Running"`},
		{"a shadow pod that ends", []seen{
			{shadows: []Shadow{{Namespace: tenant, Name: "a", HomePlace: Keep, Phase: "Running"}}},
			{shadows: []Shadow{{Namespace: tenant, Name: "a", HomePlace: Keep, Phase: phaseFailed}}}}, ""},

		{"a pod in another tenant's namespace", []seen{{remote: []Pod{remotePod("x", "a", "web", in("keep-paris"))}}}, "in keep-paris"},
		{"a pod in the namespace of another place", []seen{{remote: []Pod{remotePod("x", "a", "web", in("roam-rome"))}}}, "in roam-rome"},
		{"a pod of a namespace that is not offloaded", []seen{{remote: []Pod{remotePod("x", "a", "alien", of(Stay))}}}, "in stay"},
		{"a pod that nobody at home asked for", []seen{{remote: []Pod{remotePod("x", "", "web")}}}, `home UID ""`},
		{"a pod where it belongs", []seen{{home: []Pod{homePod("a", "web")}, remote: []Pod{remotePod("x", "a", "web")}}}, ""},
		{"a stranger on the virtual node", []seen{{home: []Pod{homePod("a", "alien", of(Stay))}}}, "is bound to the virtual node"},
		{"a stranger at home", []seen{{home: []Pod{homePod("a", "alien", of(Stay), atHome)}}}, ""},
		{"an intent outside the tenant's namespace", []seen{{shadows: []Shadow{{Namespace: "default", Name: "a", HomePlace: Keep}}}}, "is in default"},
		{"an intent of a namespace that is not offloaded", []seen{{shadows: []Shadow{{Namespace: tenant, Name: "a", HomePlace: Stay}}}}, "shadow of"},

		{"db-0 runs on both sides", []seen{{home: []Pod{homePod("b", "db", unique, atHome)}, remote: []Pod{remotePod("x", "a", "db", unique)}}}, "runs on rome-1 and, as x, on milan-1"},
		{"the one there has ended", []seen{{home: []Pod{homePod("b", "db", unique, atHome)}, remote: []Pod{remotePod("x", "a", "db", unique, dead)}}}, ""},
		{"the one here has not begun", []seen{{home: []Pod{homePod("b", "db", unique, atHome, dead)}, remote: []Pod{remotePod("x", "a", "db", unique)}}}, ""},
		{"the one here is the one there", []seen{{home: []Pod{homePod("a", "db", unique)}, remote: []Pod{remotePod("x", "a", "db", unique)}}}, ""},
		{"of a Deployment there may be two", []seen{{home: []Pod{homePod("b", "web", atHome)}, remote: []Pod{remotePod("x", "a", "web")}}}, ""},

		{"a pod that may run at providers only is evicted", []seen{{home: []Pod{homePod("a", "web", evicted)}}}, "web-0 is evicted"},
		{"one that may run on either side", []seen{{home: []Pod{homePod("a", "web", of(Roam), evicted)}}}, "web-0 is evicted"},
		{"one from a node of home", []seen{{home: []Pod{homePod("a", "web", atHome, evicted)}}}, ""},

		{"a Secret of another place", []seen{{secrets: []Held{{"roam-rome", Login, value(Keep, Login)}}}}, "is in Secret roam-rome/login"},
		{"a Secret of another name", []seen{{secrets: []Held{{"keep-rome", "mine", value(Keep, Login)}}}}, "is in Secret keep-rome/mine"},
		{"a Secret that stays home", []seen{{secrets: []Held{{"keep-rome", Denied, value(Keep, Denied)}}}}, "keep/denied"},
		{"a Secret that no pod refers to", []seen{{secrets: []Held{{"keep-rome", Other, value(Keep, Other)}}}}, "keep/other"},
		{"a Secret of a namespace that is not offloaded", []seen{{secrets: []Held{{"stay-rome", Login, value(Stay, Login)}}}}, "stay/login"},
		{"a Secret on its way that stays home", []seen{{shadows: []Shadow{{Namespace: tenant, Kind: "Secret", HomePlace: Keep, HomeName: Other}}}}, "stays home"},
		{"the Secret that pods refer to", []seen{{secrets: []Held{{"keep-rome", Login, value(Keep, Login)}}, shadows: []Shadow{{Namespace: tenant, Kind: "Secret", HomePlace: Keep, HomeName: Login}}}}, ""},

		{"a ConfigMap of another place", []seen{{configs: []Held{{"roam-rome", Settings, value(Keep, Settings)}}}}, "is in ConfigMap roam-rome/settings"},
		{"a ConfigMap of a namespace that is not offloaded", []seen{{configs: []Held{{"stay-rome", Settings, value(Stay, Settings)}}}}, "stay/settings"},
		{"a Secret in a ConfigMap", []seen{{configs: []Held{{"keep-rome", Settings, value(Keep, Denied)}}}}, "keep/denied"},
		{"a ConfigMap on its way that no pod refers to", []seen{{shadows: []Shadow{{Namespace: tenant, Kind: "ConfigMap", HomePlace: Keep, HomeName: "kube-root-ca.crt"}}}}, "of a ConfigMap that stays home"},
		{"the Kubernetes Service on its way", []seen{{shadows: []Shadow{{Namespace: tenant, Kind: "Service", HomePlace: Keep, HomeName: "kubernetes"}}}}, "of a Service that stays home"},
		{"a Service in a namespace that is no place's", []seen{{services: []Service{{"default", "to-web", "web", Keep, 80}}}}, "a Service of it is in default"},
		{"a Service of a namespace that is not offloaded", []seen{{services: []Service{{"stay-rome", "to-alien", "alien", Stay, 80}}}}, "a Service of it is in stay-rome"},
		{"its slice", []seen{{slices: []Slice{{Namespace: "stay-rome", Service: "to-alien", Place: Stay, Sent: true}}}}, "a slice of it is in stay-rome"},
		{"a Service of a namespace that is not offloaded, beside those that are", []seen{{services: []Service{{"keep-rome", "to-alien", "alien", Stay, 80}}}}, "stay/to-alien: a Service of it is in keep-rome"},
		{"a Service of another place", []seen{{services: []Service{{"roam-rome", "to-web", "web", Keep, 80}}}}, "keep/to-web: a Service of it is in roam-rome"},
		{"a Service of no place", []seen{{services: []Service{{"roam-rome", "to-web", "web", "", 80}}}}, "a Service of it is in roam-rome"},
		{"a slice of another place", []seen{{slices: []Slice{{Namespace: "keep-rome", Service: "to-web", Place: Roam, Sent: true}}}}, "roam/to-web: a slice of it is in keep-rome"},
		{"a Secret comes when no pod ever referred to it", []seen{
			{secrets: login}, {secrets: login, at: time.Minute}}, "Secret keep-rome/login came to the provider"},
		{"a ConfigMap comes long after the last pod", []seen{
			{home: pods}, {at: time.Second}, {configs: settings, at: 5 * time.Minute}, {configs: settings, at: 6 * time.Minute}}, "ConfigMap keep-rome/settings came to the provider"},
		{"a Secret comes soon after the last pod", []seen{{home: pods}, {at: time.Second}, {secrets: login, at: time.Minute}, {secrets: login, at: 9 * time.Minute}}, ""},
		{"a Secret is seen before its pod", []seen{{secrets: login}, {home: pods, secrets: login, at: 10 * time.Second}, {secrets: login, at: 9 * time.Minute}}, ""},
		{"a Secret stays after the last pod", []seen{{home: pods, secrets: login}, {secrets: login, at: 9 * time.Minute}}, ""},
		{"a Secret comes for a pod of another place", []seen{
			{home: []Pod{homePod("a", "web", of(Roam))}, secrets: login}, {secrets: login, at: time.Minute}}, "Secret keep-rome/login came to the provider"},
		{"all where it belongs", []seen{{configs: []Held{{"keep-rome", Settings, value(Keep, Settings)}}, services: []Service{{"keep-rome", "to-web", "web", Keep, 80}},
			slices: []Slice{{Namespace: "keep-rome", Service: "to-web", Place: Keep}}, shadows: []Shadow{{Namespace: tenant, Kind: "Service", HomePlace: Keep, HomeName: "to-web"}}}}, ""},
	} {
		m := NewMemory()
		for i, each := range c.worlds {
			found := m.Never(each.world())
			switch last := i == len(c.worlds)-1; {
			case c.want == "" || !last:
				if len(found) > 0 {
					t.Errorf("%s: world %d is said to violate: %s", c.reason, i, found)
				}
			case len(found) != 1 || !strings.Contains(found[0].String(), c.want):
				t.Errorf("%s: %q, want one with %q", c.reason, found, c.want)
			}
		}
	}
}

// TestDoubtful holds that only what two watches show is doubted.
func TestDoubtful(t *testing.T) {
	w := seen{home: []Pod{homePod("b", "db", unique, atHome)}, remote: []Pod{remotePod("x", "a", "db", unique), remotePod("y", "c", "web", in("default"))}}.world()
	for _, v := range NewMemory().Never(w) {
		if v.Doubtful != (v.App == "db") {
			t.Errorf("%s: doubtful %t", v, v.Doubtful)
		}
	}
}
