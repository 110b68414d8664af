package network

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestCouples is which providers may have a direct path between them, and what each is told of it.
func TestCouples(t *testing.T) {
	const own, at80, at81 = "10.42.0.0/16", "10.80.0.0/16", "10.81.0.0/16"
	through := func(of, other string) func(f *facts) {
		return func(f *facts) {
			f.agents = alives(consumerKey(of), v1alpha1.TunnelReport{Through: []string{consumerKey("bern"), consumerKey(other)}})
		}
	}
	both := "milan oslo [10.81.0.0/16] [10.80.0.0/16]"
	for _, c := range []struct {
		reason string
		change func(f *facts)
		want   string
	}{
		{"both share a namespace", nil, both},
		{"they talk, says one gateway", through("milan", "oslo"), both + " talks"},
		{"or the other one", through("oslo", "milan"), both + " talks"},
		{"each with another", through("milan", "rome"), both},
		{"an agent says so that lives no more", func(f *facts) { through("milan", "oslo")(f); f.agents[0].alive = false }, both},
		{"one Peering does not allow it", func(f *facts) { f.pairs[1].direct = false }, ""},
		{"nor the other", func(f *facts) { f.pairs[0].direct = false }, ""},
		{"one does not know them", func(f *facts) { f.pairs[0].able = no }, ""},
		{"of one it is not known", func(f *facts) { f.pairs[1].able = unknown }, both + " unsure"},
		{"nothing there is reached", func(f *facts) { f.pairs[1].reach = v1alpha1.ReachNone }, ""},
		{"a namespace there lets none be reached", func(f *facts) { f.pairs[1].shut = true }, ""},
		{"pods of a tenant may run at one of them", func(f *facts) {
			f.pairs = append(f.pairs, &pair{namespace: "pelago-tenant-genoa", key: "tenant-genoa", peer: "genoa", hosts: map[string]bool{"inn": true}})
		}, ""},
		{"a tenant's run here", func(f *facts) {
			f.pairs = append(f.pairs, &pair{namespace: "pelago-tenant-genoa", key: "tenant-genoa", peer: "genoa", hosts: map[string]bool{"inn-genoa": true}})
		}, both},
		{"no namespace in common", func(f *facts) { f.pairs[1].spaces = map[string]bool{"bank": true} }, ""},
		{"one is gone", func(f *facts) { f.pairs[1].wanted = false }, ""},
		{"one is a tenant", func(f *facts) { f.pairs[1].consumes = false }, ""},
		{"a view is not stored", func(f *facts) { f.pairs[1].provider.Status.Views = nil }, ""},
		{"nor that of the other", func(f *facts) { f.pairs[0].provider.Status.Views = nil }, ""},
		{"there is no room to tell one of the other", func(f *facts) {
			f.property.Pods = nil
			for i := range maxPublished {
				f.property.Pods = append(f.property.Pods, prefixes([]string{fmt.Sprintf("10.43.%d.0/24", i)})...)
			}
		}, ""},
	} {
		f := usual(consumed("milan", noon, "shop", own, at80), consumed("oslo", noon.Add(time.Hour), "shop inn", own, at81))
		f.property.External = nil
		for i, p := range f.pairs {
			p.direct, p.able, p.uid = true, yes, types.UID(fmt.Sprint("uid", i))
		}
		if c.change != nil {
			c.change(f)
		}
		got := ""
		for _, of := range decide(f).couples {
			got += strings.Join(of.peerings[:], " ") + fmt.Sprintf(" %v %v", of.prefixes[0], of.prefixes[1])
			if of.talks {
				got += " talks"
			}
			if of.unsure {
				got += " unsure"
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// TestPathName holds that a path has one name whichever end comes first, another at each pair of
// Peerings and cluster, and that it is one that the kind takes.
func TestPathName(t *testing.T) {
	names := map[string]bool{}
	for _, of := range [][3]string{{"c", "x", "y"}, {"d", "x", "y"}, {"c", "x", "z"}, {"c", "xy", ""}, {"c", "y\nx", ""}} {
		name := pathName(of[0], of[1], of[2])
		if name != pathName(of[0], of[2], of[1]) || len(name) != 16 || names[name] || strings.Trim(name, "0123456789abcdef") != "" {
			t.Errorf("%v is %q", of, name)
		}
		names[name] = true
	}
}

// script drives paths between providers, with a clock of its own.
type script struct {
	paths
	now     time.Time
	couples []couple
	at      map[string]map[string]end // nil at those that cannot be asked
	hidden  map[string]map[string]end // what these have
}

func newScript(names ...string) *script {
	s := &script{now: noon, at: map[string]map[string]end{}, hidden: map[string]map[string]end{}}
	for i := 0; i+1 < len(names); i += 2 {
		s.couples = append(s.couples, couple{name: names[i] + names[i+1], peerings: [2]string{names[i], names[i+1]},
			prefixes: [2][]string{{"10.81.0.0/16"}, {"10.80.0.0/16"}}})
	}
	for _, name := range names {
		s.at[name] = map[string]end{}
	}
	return s
}

// look lets everything be seen, and carries out what is wished, until nothing changes.
func (s *script) look() {
	for range 3 {
		s.want(slices.Clone(s.couples), s.now)
		for _, peering := range slices.Sorted(keysOf(s.at)) {
			ends := s.at[peering]
			wishes, known := s.hear(peering, cloned(ends), s.now)
			if ends == nil || !known {
				continue
			}
			for name := range ends {
				if _, wished := wishes[name]; !wished {
					delete(ends, name)
				}
			}
			for name, w := range wishes {
				if _, there := ends[name]; !there && !w.asIs {
					ends[name] = end{}
				}
			}
		}
	}
}

func keysOf(all map[string]map[string]end) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range all {
			if !yield(key) {
				return
			}
		}
	}
}

func cloned(ends map[string]end) map[string]end {
	if ends == nil {
		return nil
	}
	all := map[string]end{}
	for name, e := range ends {
		all[name] = e
	}
	return all
}

// say has one end say something.
func (s *script) speak(peering, name string, change func(e *end)) {
	if e, there := s.at[peering][name]; there {
		change(&e)
		s.at[peering][name] = e
	}
}

// there is where a path is.
func (s *script) there(name string) string {
	var at []string
	for _, peering := range slices.Sorted(keysOf(s.at)) {
		if _, is := s.at[peering][name]; is {
			at = append(at, peering)
		}
		if _, is := s.hidden[peering][name]; is {
			at = append(at, peering+" away")
		}
	}
	return strings.Join(at, " ")
}

// said are the reasons of events since the last call, with the Peerings.
func (s *script) said() string {
	var all []string
	for _, n := range s.fetch() {
		all = append(all, n.peering+":"+n.reason)
	}
	return strings.Join(all, " ")
}

func ready(e *end) { e.ready = true }

const (
	madeBoth  = "milan:DirectPathMade oslo:DirectPathMade"
	endedBoth = "milan:DirectPathEnded oslo:DirectPathEnded"
)

// TestPathCourse is the life of a path, by what happens after each other.
func TestPathCourse(t *testing.T) {
	const name = "milanoslo"
	type step struct {
		after time.Duration
		do    func(s *script)
		there string // afterwards
		said  string
	}
	talk := func(s *script) { s.couples[0].talks = true }
	quiet := func(s *script) { s.couples[0].talks = false }
	nothing := func(*script) {}
	alive := func(s *script) { s.speak("milan", name, ready); s.speak("oslo", name, ready) }
	refuse := func(peering, reason string) func(s *script) {
		return func(s *script) {
			quiet(s)
			s.speak(peering, name, func(e *end) { e.reason = reason })
		}
	}
	use := func(peering, minute string) func(s *script) {
		return func(s *script) { s.speak(peering, name, func(e *end) { e.used = minute }) }
	}
	away := func(peerings ...string) func(s *script) {
		return func(s *script) {
			for _, peering := range peerings {
				s.hidden[peering], s.at[peering] = s.at[peering], nil
			}
		}
	}
	back := func(peering string) func(s *script) {
		return func(s *script) { s.at[peering] = s.hidden[peering]; delete(s.hidden, peering) }
	}
	restart := func(s *script) { s.paths.known, s.courses, s.ends, s.wishes, s.told = false, nil, nil, nil, nil }
	const both = "milan oslo"
	for _, c := range []struct {
		reason string
		steps  []step
	}{
		{"who does not talk has nothing", []step{{time.Hour, nothing, "", ""}}},
		{"made, used, and ended 5 minutes after the last packet", []step{
			{0, talk, both, ""}, {time.Second, alive, both, madeBoth}, {time.Minute, quiet, both, ""},
			{4 * time.Minute, use("milan", "12:05"), both, ""}, {4 * time.Minute, use("oslo", "12:09"), both, ""},
			{pathIdle - time.Second, nothing, both, ""}, {time.Second, nothing, "", endedBoth}, {time.Minute, nothing, "", ""}}},
		{"a new one has 5 minutes", []step{{0, talk, both, ""}, {time.Second, quiet, both, ""}, {pathIdle - 2*time.Second, nothing, both, ""}, {3 * time.Second, nothing, "", endedBoth}}},
		{"that it talks by way of home is as good as use", []step{{0, talk, both, ""}, {time.Hour, nothing, both, ""}, {time.Hour, quiet, both, ""}, {pathIdle - time.Second, nothing, both, ""}}},
		{"one that was idle is made again when they talk", []step{{0, talk, both, ""}, {0, quiet, both, ""}, {pathIdle, nothing, "", endedBoth}, {time.Second, talk, both, ""}, {0, alive, both, madeBoth}}},
		{"a tunnel that dies and lives is no news", []step{{0, talk, both, ""}, {0, alive, both, madeBoth},
			{time.Second, func(s *script) { s.speak("oslo", name, func(e *end) { e.ready = false }) }, both, ""}, {time.Second, alive, both, ""}}},
		{"one end alone is not alive", []step{{0, talk, both, ""}, {0, func(s *script) { s.speak("milan", name, ready) }, both, ""}}},
		{"a provider that does not allow it is asked again after 10 minutes", []step{
			{0, talk, both, ""}, {time.Second, func(s *script) { refuse("oslo", v1alpha1.ReasonNotAllowed)(s); talk(s) }, "", endedBoth},
			{pathHeld - time.Second, nothing, "", ""}, {time.Second, nothing, both, ""}}},
		{"as one that takes no more", []step{{0, talk, both, ""}, {time.Second, refuse("milan", v1alpha1.ReasonLimitExceeded), "", endedBoth}}},
		{"what may be put right is no refusal", []step{
			{0, talk, both, ""}, {time.Second, refuse("oslo", v1alpha1.ReasonPrefixesRefused), both, ""}, {time.Second, refuse("oslo", v1alpha1.ReasonPathEnded), both, ""}, {time.Second, refuse("oslo", v1alpha1.ReasonTunnelDown), both, ""}}},
		{"the couple is none any more", []step{{0, talk, both, ""}, {time.Second, func(s *script) { s.couples = nil }, "", endedBoth}, {time.Second, nothing, "", ""}}},
		{"while it is not known whether they can, what there is stays, and nothing is made", []step{
			{0, func(s *script) { talk(s); s.couples[0].unsure = true }, "", ""}, {0, func(s *script) { s.couples[0].unsure = false }, both, ""},
			{time.Second, func(s *script) { quiet(s); s.couples[0].unsure = true }, both, ""}, {time.Hour, nothing, both, ""},
			{time.Second, func(s *script) { delete(s.at["oslo"], name) }, "milan", ""}}},
		{"of what was not made there is no end", []step{{0, func(s *script) { talk(s); s.couples[0].unsure = true }, "", ""}, {0, func(s *script) { s.couples = nil }, "", ""}}},
		{"nothing is made at one alone", []step{{0, func(s *script) { away("oslo")(s); talk(s) }, "", ""}, {time.Second, back("oslo"), both, ""}}},
		{"one is away: it goes on, as the other says, and ends there", []step{
			{0, talk, both, ""}, {0, quiet, both, ""}, {0, away("oslo"), "milan oslo away", ""}, {4 * time.Minute, use("milan", "12:04"), "milan oslo away", ""},
			{4 * time.Minute, nothing, "milan oslo away", ""}, {time.Minute, nothing, "oslo away", endedBoth}, {time.Minute, back("oslo"), "", ""}, {time.Second, nothing, "", ""}, {0, talk, both, ""}}},
		{"home is cut off from both: what there is stays, and counts anew", []step{
			{0, talk, both, ""}, {0, quiet, both, ""}, {0, away("milan", "oslo"), "milan away oslo away", ""}, {time.Hour, nothing, "milan away oslo away", ""},
			{0, back("milan"), "milan oslo away", ""}, {0, back("oslo"), both, ""}, {pathIdle - time.Second, nothing, both, ""}, {time.Second, nothing, "", endedBoth}}},
		{"a manager that begins anew removes nothing that is used, and tells nothing twice", []step{
			{0, talk, both, ""}, {0, alive, both, madeBoth}, {0, func(s *script) { quiet(s); use("milan", "12:01")(s); restart(s) }, both, ""},
			{pathIdle - time.Second, nothing, both, ""}, {0, use("oslo", "12:05"), both, ""}, {pathIdle - time.Second, nothing, both, ""}, {time.Second, nothing, "", endedBoth}}},
		{"somebody removes one end: it is made again", []step{{0, talk, both, ""}, {0, quiet, both, ""}, {time.Second, func(s *script) { delete(s.at["oslo"], name) }, both, ""}}},
		{"somebody removes both, when all was quiet", []step{{0, talk, both, ""}, {0, quiet, both, ""}, {4 * time.Minute, use("milan", "12:04"), both, ""},
			{2 * time.Minute, func(s *script) { delete(s.at["milan"], name); delete(s.at["oslo"], name) }, "", endedBoth}}},
		{"the clock goes back", []step{{0, talk, both, ""}, {0, quiet, both, ""}, {-24 * time.Hour, nothing, both, ""}, {pathIdle, nothing, "", endedBoth}}},
		{"the clock goes back while one is held", []step{
			{0, talk, both, ""}, {0, func(s *script) { refuse("oslo", v1alpha1.ReasonNotAllowed)(s); talk(s) }, "", endedBoth}, {-24 * time.Hour, nothing, "", ""}, {pathHeld, nothing, both, ""}}},
		{"what nobody wants is removed", []step{{0, func(s *script) { s.at["milan"]["stranger"] = end{} }, "", ""}}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			s := newScript("milan", "oslo")
			for i, step := range c.steps {
				for end := s.now.Add(step.after); s.now != end; s.look() { // as often as the decider looks
					s.now = s.now.Add(min(end.Sub(s.now), lookEvery))
				}
				step.do(s)
				s.look()
				if got := s.there(name); got != step.there {
					t.Fatalf("step %d: it is at %q, want %q", i, got, step.there)
				}
				if got := s.said(); got != step.said {
					t.Fatalf("step %d: said is %q, want %q", i, got, step.said)
				}
				if s.there("stranger") != "" {
					t.Errorf("step %d: what nobody wants stays", i)
				}
			}
		})
	}
}

// TestPathsUnknown holds that nothing is removed before it is known what is wanted.
func TestPathsUnknown(t *testing.T) {
	p := &paths{}
	if wishes, known := p.hear("milan", map[string]end{"milanoslo": {}}, noon); wishes != nil || known {
		t.Errorf("before the first look there are wishes %v, known %t", wishes, known)
	}
}

// TestPathsLimit holds that of more than a provider takes those are there that are used, and that
// these do not give way to others that would be.
func TestPathsLimit(t *testing.T) {
	var names []string
	const most = v1alpha1.MaxNetworkPaths
	for i := range most + 1 {
		names = append(names, "milan", fmt.Sprintf("p%02d", i))
	}
	s := newScript(names...)
	for i := range most {
		s.couples[i].talks = true
	}
	s.look()
	if got := len(s.at["milan"]); got != most || s.there("milanp16") != "" {
		t.Fatalf("there are %d", got)
	}
	for i := range most - 1 { // all but one are used
		s.couples[i].talks = false
		s.speak("milan", s.couples[i].name, func(e *end) { e.used = "12:01" })
	}
	s.couples[most-1].talks = false
	s.now = s.now.Add(time.Minute)
	s.look()
	s.couples[most].talks = true
	s.look()
	told := func(reason string, want int) {
		t.Helper()
		n := 0
		for _, of := range s.fetch() {
			if of.peering != "milan" && strings.Contains(of.text, "takes no more than 16") {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: said of the one too many is %d times, want %d", reason, n, want)
		}
	}
	told("it gives way to one that talks", 1)
	if s.there("milanp16") != "milan p16" || s.there("milanp15") != "" || s.there("milanp00") != "milan p00" || len(s.at["milan"]) != most {
		t.Errorf("who talks is at %q, who is quiet at %q, who is served at %q", s.there("milanp16"), s.there("milanp15"), s.there("milanp00"))
	}
	s.couples[most-1].talks = true
	s.look()
	told("the other one gives way to it", 1)
	for _, of := range s.couples[:most-1] {
		if s.there(of.name) == "" || len(s.at["milan"]) != most {
			t.Errorf("%s, that is used, gives way to one that would be", of.name)
		}
	}
	for i := range s.couples {
		s.couples[i].talks = true
	}
	s.look()
	told("all talk", 0)
	s.now = s.now.Add(tellAgain)
	s.look()
	told("it is so after half an hour", 1)
}

// TestWishes holds what of one end the other is told: what is said and makes sense, and what was before
// while nothing is known.
func TestWishes(t *testing.T) {
	const name = "milanoslo"
	for _, c := range []struct {
		reason string
		do     func(s *script)
		want   wish
	}{
		{"nothing is said yet", nil, wish{known: true}},
		{"a key and where it is", func(s *script) {
			s.speak("oslo", name, func(e *end) { e.publicKey, e.endpoints = "k", []string{"e"} })
		}, wish{known: true, publicKey: "k", endpoints: []string{"e"}}},
		{"what is not taken", func(s *script) { s.speak("oslo", name, func(e *end) { e.problem = "x" }) }, wish{}},
		{"one's own key", func(s *script) {
			s.speak("oslo", name, func(e *end) { e.publicKey = "k" })
			s.speak("milan", name, func(e *end) { e.publicKey = "k" })
		}, wish{}},
		{"the other end is away", func(s *script) { s.at["oslo"] = nil }, wish{}},
		{"it is not known whether they can", func(s *script) { s.couples[0].unsure = true }, wish{known: true, asIs: true}},
	} {
		s := newScript("milan", "oslo")
		s.couples[0].talks = true
		s.look()
		if c.do != nil {
			c.do(s)
		}
		s.look()
		c.want.prefixes = []string{"10.81.0.0/16"}
		if d := cmp.Diff(c.want, s.wishes["milan"][name], cmp.AllowUnexported(wish{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestWishSpec holds what is written of a wish: what is not known stays, and the time moves when less
// than a day is left.
func TestWishSpec(t *testing.T) {
	key := keyOf(3).Public().String()
	at := func(in time.Duration) string { return noon.Add(in).Format(time.RFC3339) }
	for _, c := range []struct {
		reason string
		w      wish
		have   string
		key    string
		until  string
	}{
		{"a new one", wish{known: true, publicKey: key}, `{}`, key, at(pathFor)},
		{"enough is left", wish{known: true}, `{"publicKey":"` + key + `","until":"` + at(pathRenew) + `"}`, "", at(pathRenew)},
		{"too little is left", wish{}, `{"publicKey":"` + key + `","until":"` + at(pathRenew-time.Second) + `"}`, key, at(pathFor)},
		{"the clock has gone back", wish{}, `{"until":"` + at(pathFor+time.Minute) + `"}`, "", at(pathFor)},
		{"no time", wish{}, `{"publicKey":5,"until":"x"}`, "", at(pathFor)},
	} {
		s := c.w.spec(decoded(t, c.have), noon)
		if got := s.Until.UTC().Format(time.RFC3339); s.PublicKey != c.key || got != c.until {
			t.Errorf("%s: %q until %s, want %q until %s", c.reason, s.PublicKey, got, c.key, c.until)
		}
	}
}

// TestReceivedPath takes of what a provider says of its end what makes sense.
func TestReceivedPath(t *testing.T) {
	key := keyOf(1).Public().String()
	good := `{"status":{"publicKey":"` + key + `","endpoints":["198.51.100.7:7101","gw.example.org:7101","198.51.100.7:7101"],"used":"2026-11-22T12:00:00Z",
		"conditions":[{"type":"Other"},{"type":"Ready","status":"False","reason":"NotAllowed","message":"a\nb"}]}}`
	want := end{publicKey: key, endpoints: []string{"198.51.100.7:7101", "gw.example.org:7101"}, used: "2026-11-22T12:00:00Z", reason: v1alpha1.ReasonNotAllowed, text: "a b"}
	got := receivedPath(decoded(t, good))
	if d := cmp.Diff(want, got, cmp.AllowUnexported(end{})); d != "" || !got.refuses() {
		t.Errorf("taken (-want +got):\n%s", d)
	}
	if got := receivedPath(decoded(t, `{"metadata":{"deletionTimestamp":"x"},"status":{"conditions":[{"type":"Ready","status":"True","reason":"NotAllowed"}]}}`)); !got.ready || !got.leaving || got.refuses() {
		t.Errorf("of one that is ready and goes: %+v", got)
	}
	for reason, c := range map[string]struct{ status, want string }{
		"a key that is none":          {`{"publicKey":"x","endpoints":["198.51.100.7:1"]}`, "status.publicKey: is no public key"},
		"endpoints that are no list":  {`{"publicKey":"` + key + `","endpoints":{}}`, "status.endpoints: is no list"},
		"too many endpoints":          {`{"endpoints":[` + strings.TrimSuffix(strings.Repeat(`"a:1",`, 17), ",") + `]}`, "status.endpoints: there are 17"},
		"an endpoint of this host":    {`{"publicKey":"` + key + `","endpoints":["127.0.0.1:22"]}`, `status.endpoints: "127.0.0.1:22" is not`},
		"an endpoint of link-local":   {`{"endpoints":["169.254.169.254:80"]}`, "is not HOST:PORT"},
		"an endpoint with port 0":     {`{"endpoints":["198.51.100.7:0"]}`, "is not HOST:PORT"},
		"an endpoint that is a novel": {`{"endpoints":["` + strings.Repeat("a", 300) + `:1"]}`, "one is no text"},
	} {
		if e := receivedPath(decoded(t, `{"status":`+c.status+`}`)); !strings.Contains(e.problem, c.want) || e.publicKey != "" || e.endpoints != nil {
			t.Errorf("%s: taken %+v, want %s", reason, e, c.want)
		}
	}
	for _, text := range []string{`{}`, `{"status":[]}`, `{"status":{"used":"yesterday"}}`, `{"status":{"used":"2026-11-22T12:00:00.` + strings.Repeat("1", 90) + `Z"}}`, `{"status":{"used":7,"conditions":[5,{"type":"Ready","status":true,"reason":"two words"}]}}`} {
		if e := receivedPath(decoded(t, text)); !cmp.Equal(e, end{}, cmp.AllowUnexported(end{})) {
			t.Errorf("%s: taken %+v", text, e)
		}
	}
}

// FuzzPathStatus: whatever a provider shows of its end, what is taken can be told to the other one.
func FuzzPathStatus(f *testing.F) {
	f.Add([]byte(`{"status":{"publicKey":"` + keyOf(1).Public().String() + `","endpoints":["198.51.100.7:7101"],"used":"2026-11-22T12:00:00Z","conditions":[{"type":"Ready","status":"False","reason":"NotAllowed","message":"x"}]}}`))
	f.Add([]byte(`{"metadata":{"deletionTimestamp":5},"status":{"endpoints":[[],null,"[::1]:1","a:1"],"used":"x","conditions":[null,{"type":"Ready","status":"True","reason":"\n"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var obj map[string]any
		if utiljson.Unmarshal(text, &obj) != nil {
			return
		}
		e := receivedPath(obj)
		if len(e.endpoints) > 16 || e.publicKey != "" && !keyText.MatchString(e.publicKey) || e.problem != "" && (e.publicKey != "" || e.endpoints != nil) ||
			len(e.used) > maxTime || len([]rune(e.text)) > maxSaid || !utf8.ValidString(e.text) || !utf8.ValidString(e.problem) || e.ready && e.refuses() {
			t.Errorf("taken: %+v", e)
		}
		for _, at := range e.endpoints {
			if len(at) > maxHost || !endpoint(at) {
				t.Errorf("endpoint %q", at)
			}
		}
		p := tenantOf("rome", "10.81.0.0/16")
		s := wish{prefixes: []string{"10.81.0.0/16"}, known: true, publicKey: e.publicKey, endpoints: e.endpoints}.spec(nil, noon)
		if reason, said := judge(s, p, nil, noon); reason != "" {
			t.Errorf("the other end refuses what was taken: %s: %s", reason, said)
		}
	})
}
