package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// usual is a ShadowPod as they are: 7 KB of text, 2 KB of them the pod's status, and 2 KB who wrote what.
func usual(i int) string {
	condition := `{"type":"ContainersReady","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-20T10:00:00Z"},`
	status := `{"phase":"Running","conditions":[` + strings.Repeat(condition, 4) + strings.TrimSuffix(condition, ",") + `],"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-11-20T10:00:00Z"}},` +
		`"lastState":{},"ready":true,"restartCount":0,"image":"registry.example/shop/web:1.2.3","imageID":"registry.example/shop/web@sha256:` + strings.Repeat("0", 64) +
		`","containerID":"containerd://` + strings.Repeat("0", 64) + `","started":true}],"qosClass":"Burstable"}`
	pod := `{"containers":[{"name":"web","image":"registry.example/shop/web:1.2.3","resources":{}}],"x":"` + strings.Repeat("x", 2000) + `"}`
	fields := `{".":{},"f:a":{},"f:b":{},"f:c":{},"f:d":{".":{},"f:e":{},"f:f":{},"f:g":{}},"f:h":{".":{},"f:i":{},"f:j":{},"f:k":{},"f:l":{}}}`
	wrote := `{"manager":"pelago","operation":"Update","apiVersion":"pelago.dev/v1alpha1","time":"2026-11-20T10:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":` + fields + `,"f:spec":` + fields + `}}`
	quoted := func(s string) string { text, _ := json.Marshal(s); return string(text) }
	id := fmt.Sprintf("7b0d9c36-6d0f-4b0e-9a58-%012d", i)
	home := `{"namespace":"shop","name":"web-5d8f7c9b6d-abcde","uid":"` + id + `"}`
	return `{"apiVersion":"pelago.dev/v1alpha1","kind":"ShadowPod","metadata":{"name":"` + id + `","namespace":"ns","uid":"` + id + `","resourceVersion":"` + strconv.Itoa(i+1) +
		`","generation":1,"creationTimestamp":"2026-11-20T10:00:00Z","labels":{"pelago.dev/origin":"` + clusterID + `","pelago.dev/request":"x"},"finalizers":["pelago.dev/shadowpod"],"managedFields":[` + wrote + `,` + wrote + `]},` +
		`"spec":{"home":` + home + `,"request":"x","labels":{"app":"web","pod-template-hash":"5d8f7c9b6d"},"annotations":{"a":"b"},"pod":` + quoted(pod) + `},` +
		`"status":{"observedGeneration":1,"ref":` + home + `,"phase":"Running","pod":` + quoted(status) + `,"addressVersion":12345,"conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"","lastTransitionTime":"2026-11-20T10:00:00Z"}]}}`
}

// withoutPod is the Trim of ShadowPods.
func withoutPod(u *unstructured.Unstructured) {
	if spec, ok := u.Object["spec"].(map[string]any); ok {
		delete(spec, "pod")
	}
}

// crowded answers with so many objects, in pages that were made before.
type crowded []string

func crowdOf(n int) crowded {
	var pages crowded
	for from := 0; from < n; from += pageSize {
		var items []string
		for i := from; i < min(from+pageSize, n); i++ {
			items = append(items, usual(i))
		}
		next := ""
		if from+pageSize < n {
			next = strconv.Itoa(len(pages) + 1)
		}
		pages = append(pages, fmt.Sprintf(`{"metadata":{"resourceVersion":"1","continue":%q},"items":[%s]}`, next, strings.Join(items, ",")))
	}
	return pages
}

func (c crowded) RoundTrip(r *http.Request) (*http.Response, error) {
	at, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(c[at]))}, nil
}

// crowdedSession is a session with ShadowPods of which there are so many.
func crowdedSession(n int) (*session, *mirror) {
	s, m, _ := standing()
	m.gvk, m.objects, m.version = v1alpha1.GroupVersion.WithKind("ShadowPod"), nil, ""
	m.bounds = Bounds{Beyond: true, Objects: v1alpha1.MaxShadowPods, Bytes: 256 << 20, Trim: withoutPod}
	s.base, s.stream = &url.URL{Scheme: "https", Host: "milan.example"}, &http.Client{Transport: crowdOf(n)}
	s.changed = func(*session, *unstructured.Unstructured) {}
	return s, m
}

// BenchmarkList reads 500 usual ShadowPods for the first time.
func BenchmarkList(b *testing.B) {
	s, m := crowdedSession(500)
	b.ReportAllocs()
	for b.Loop() {
		m.objects = nil
		if err := s.list(b.Context(), m); err != nil || len(m.all()) != 500 {
			b.Fatalf("%d, %v", len(m.all()), err)
		}
	}
}
