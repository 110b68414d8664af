package verify

import (
	"net/netip"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/google/go-cmp/cmp"
)

var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func ips(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, t := range texts {
		all = append(all, netip.MustParseAddr(t))
	}
	return all
}

func TestParseAnswer(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		want         answer
		bad          bool
	}{
		{"IPv4 on a socket for both", "web-0 [::ffff:10.42.0.5]\n", answer{"web-0", netip.MustParseAddr("10.42.0.5")}, false},
		{"IPv4", "web-0 10.42.0.5\n", answer{"web-0", netip.MustParseAddr("10.42.0.5")}, false},
		{"IPv6", "web-0 [fd42::5]", answer{"web-0", netip.MustParseAddr("fd42::5")}, false},
		{"a zone is the server's own matter", "web-0 [fe80::5%eth0]", answer{"web-0", netip.MustParseAddr("fe80::5")}, false},
		{"nothing", "", answer{}, true},
		{"another server", "<html>", answer{}, true},
		{"a name alone", "web-0 ", answer{}, true},
	} {
		got, err := parseAnswer(c.text)
		if (err != nil) != c.bad || got != c.want {
			t.Errorf("%s: %+v, %v", c.reason, got, err)
		}
	}
}

func TestParseLookup(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		want         []netip.Addr
	}{
		{"the server's own address is not an answer", "Server:\t\t10.43.0.10\nAddress:\t10.43.0.10:53\n\nName:\tweb.x.svc.cluster.local\nAddress: 10.42.0.5\nName:\tweb.x.svc.cluster.local\nAddress: 10.42.1.5\n", ips("10.42.0.5", "10.42.1.5")},
		{"both families", "Server:\t\tfd43::a\nAddress:\t[fd43::a]:53\n\nName:\tweb\nAddress: fd42::5\n\nName:\tweb\nAddress: 10.42.0.5\n", ips("fd42::5", "10.42.0.5")},
		{"an older busybox", "Server:    10.43.0.10\nAddress 1: 10.43.0.10 dns\n\nName:      web\nAddress 1: 10.42.0.5 10-42-0-5.web\n", ips("10.42.0.5")},
		{"an answer given twice", "Name:\tweb\nAddress: 10.42.0.5\nName:\tweb\nAddress: 10.42.0.5\n", ips("10.42.0.5")},
		{"no such name", "Server:\t\t10.43.0.10\nAddress:\t10.43.0.10:53\n\n** server can't find web: NXDOMAIN\n", nil},
		{"nothing", "", nil},
	} {
		if d := cmp.Diff(c.want, parseLookup(c.text), sameAddr); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

func TestParseDomain(t *testing.T) {
	const conf = "search other.svc.cluster.local shop.svc.my.cluster svc.my.cluster my.cluster\nnameserver 10.43.0.10\n"
	if got, err := parseDomain(conf, "shop"); err != nil || got != "shop.svc.my.cluster" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := parseDomain("nameserver 1.1.1.1\n", "shop"); err == nil {
		t.Errorf("a pod with the host's resolver has the domain %q", got)
	}
}

func TestWantFamilies(t *testing.T) {
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	for _, c := range []struct {
		reason   string
		ips      []netip.Addr
		families []corev1.IPFamily
		bad      bool
	}{
		{"no demand", nil, nil, false},
		{"both there", ips("10.0.0.1", "fd42::1"), both, false},
		{"no IPv6", ips("10.0.0.1"), both, true},
		{"no IPv4", ips("fd42::1"), both, true},
		{"more than demanded", ips("10.0.0.1", "fd42::1"), both[1:], false},
	} {
		if err := wantFamilies("it", c.ips, c.families); (err != nil) != c.bad {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
}

func TestJudge(t *testing.T) {
	good := strings.Repeat("before [::ffff:10.0.0.1]\n", 8) + strings.Repeat("after [::ffff:10.0.0.1]\n", 8)
	for _, c := range []struct{ reason, heard, want string }{
		{"all answered", good, ""},
		{"one failed", good + "failed\n", "1 of 17 requests failed"},
		{"half an answer", good + "aft", "1 of 17 requests failed"},
		{"a stranger answered", good + "web-0 10.0.0.1\n", "1 of 17 requests failed"},
		{"nothing was tried", "before 10.0.0.1\n", "only 1 requests were made, too few to tell"},
	} {
		if got := text(judge(c.heard)); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestUnscaled(t *testing.T) {
	scaler := func(desired int32, use *int32) *autoscalingv2.HorizontalPodAutoscaler {
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		h.Status.DesiredReplicas = desired
		h.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: use}}}}
		return h
	}
	deaf := scaler(1, nil)
	deaf.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScalingActive, Status: corev1.ConditionFalse, Message: "no metrics"}}
	for _, c := range []struct {
		reason string
		given  *autoscalingv2.HorizontalPodAutoscaler
		want   string
	}{
		{"measured and scaled", scaler(2, new(int32(300))), ""},
		{"measured, not scaled yet", scaler(1, new(int32(300))), "it sees a use of 300% and wants 1 pods"},
		{"scaled for another reason than load", scaler(2, new(int32(10))), "it sees a use of 10% and wants 2 pods"},
		{"says why it is deaf", deaf, "it sees a use of unknown and wants 1 pods; no metrics"},
	} {
		if got := text(unscaled(c.given, 50)); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestUnfinished(t *testing.T) {
	complete := batchv1.JobStatus{Succeeded: 3, Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}}
	for _, c := range []struct {
		reason string
		status batchv1.JobStatus
		want   string
	}{
		{"complete", complete, ""},
		{"all succeeded, not said to be complete", batchv1.JobStatus{Succeeded: 3}, "0 active, 3 succeeded, 0 failed"},
		{"failed", batchv1.JobStatus{Failed: 3, Conditions: []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue}}}, "0 active, 0 succeeded, 3 failed"},
	} {
		if got := text(unfinished(&batchv1.Job{Status: c.status}, 3)); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestArchivesComeBack(t *testing.T) {
	want := map[string][]byte{"a/large": noise(100_000), "a/b/small": []byte("x"), "a/empty": {}}
	archive, err := packed(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := unpacked(strings.NewReader(string(archive)))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := unpacked(strings.NewReader(string(archive[:5000]))); err == nil {
		t.Error("a broken archive was unpacked")
	}
}
