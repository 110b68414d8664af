package content

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// keyed is a ConfigMap of so many of them.
func keyed(count int) string {
	var all strings.Builder
	for i := range count {
		fmt.Fprintf(&all, `,"%d":""`, i)
	}
	return `{"content":{"data":{` + all.String()[1:] + `}}}`
}

func TestConfigMap(t *testing.T) {
	testDecode(t, "ConfigMap", Rules{}, []decoding{
		{"text", `{"content":{"data":{"app.conf":"a < b\n"}}}`, ""},
		{"bytes", `{"content":{"binaryData":{"a":"AAE="}}}`, ""},
		{"immutable", `{"content":{"data":{"a":"b"},"immutable":true}}`, ""},
		{"as large as can be", `{"content":{"data":{"a":"` + strings.Repeat("x", MaxContent) + `"}}}`, ""},
		{"a byte more", `{"content":{"data":{"ab":"` + strings.Repeat("x", MaxContent+1) + `"}}}`, "1048577 bytes, at most 1048576"},
		{"both kinds of data count", `{"content":{"binaryData":{"b":"eA=="},"data":{"a":"` + strings.Repeat("x", MaxContent) + `"}}}`, "at most 1048576"},
		{"as many keys as can be", keyed(maxKeys), ""},
		{"a key more", keyed(maxKeys + 1), "4097 keys, at most 4096"},
		{"a key in both", `{"content":{"binaryData":{"a":""},"data":{"a":""}}}`, "in common"},
		{"a path as key", `{"content":{"data":{"a/b":""}}}`, "data has a key"},
		{"a path as key of bytes", `{"content":{"binaryData":{"..":""}}}`, "binaryData has a key"},
		{"not base64", `{"content":{"binaryData":{"a":"?"}}}`, "not the JSON"},
		{"something else", `{"content":{"spec":{}}}`, "not the JSON"},
	})
}

func TestMergeConfigMap(t *testing.T) {
	k := Kinds["ConfigMap"]
	loose, _ := k.Decode(`{"content":{"data":{"a":"x"}}}`, Rules{})
	frozen, _ := k.Decode(`{"content":{"data":{"a":"x"},"immutable":true}}`, Rules{})
	other, _ := k.Decode(`{"content":{"data":{"a":"y"},"immutable":true}}`, Rules{})
	for _, c := range []struct {
		reason           string
		have, want       any
		changed, replace bool
	}{
		{"nothing", loose, loose, false, false},
		{"frozen and equal", frozen, frozen, false, false},
		{"to be frozen", loose, frozen, true, false},
		{"to be loosened", frozen, loose, true, true},
		{"frozen and new", frozen, other, true, true},
		{"loose and new", loose, other, true, false},
	} {
		next, changed, replace := k.Merge(c.have.(*corev1.ConfigMap), c.want.(*corev1.ConfigMap))
		if changed != c.changed || replace != c.replace || !same(next, c.want) {
			t.Errorf("%s: changed %v, replace %v", c.reason, changed, replace)
		}
	}
}
