package offer

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// A consumer cannot store a quantity that keeps a parser busy for ever: the typed
// caches of every controller would read it.
func TestServerRefusesEndlessQuantities(t *testing.T) {
	server := kubetest.Server(t)
	c, namespace := server.Client(t), server.Namespace(t)
	for _, bad := range []any{"1e999999999", "1e-999999999", "-1", -1, "1e100", "0x1", strings.Repeat("9", 40)} {
		u := kindOf("ResourceRequest")
		u.SetName("bad")
		u.SetNamespace(namespace)
		text, _ := json.Marshal(map[string]any{"resources": map[string]any{"cpu": bad}})
		var spec map[string]any
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		u.Object["spec"] = spec
		if err := c.Create(context.Background(), u); err == nil {
			t.Errorf("%v was stored", bad)
			_ = c.Delete(context.Background(), u)
		}
	}
	for i, good := range []any{"1", int64(4), "250m", "8Gi", "1.5", "1e3", "0", ".5"} {
		u := kindOf("ResourceRequest")
		u.SetName("good-" + string(rune('a'+i)))
		u.SetNamespace(namespace)
		u.Object["spec"] = map[string]any{"resources": map[string]any{"cpu": good}}
		if err := c.Create(context.Background(), u); err != nil {
			t.Errorf("%v: %v", good, err)
		}
	}
}
