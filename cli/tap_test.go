package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// reads is a player of agents: each writes one packet of the first peering or path that it is to read,
// and ends when its input does. What it has been asked for goes to asked.
func reads(t *testing.T, asked func(pod string, keys []string) error) streamed {
	return func(_ context.Context, _, pod string, command []string, in io.Reader, out io.Writer) error {
		var keys []string
		for i, word := range command[:len(command)-1] {
			if word == "--peering" {
				keys = append(keys, command[i+1])
			}
		}
		if err := asked(pod, keys); err != nil {
			return err
		}
		file, err := newPacketFile(out, keys)
		if err != nil {
			return err
		}
		there, info := frameOf(t, "10.42.0.7", "10.254.0.5", &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true})
		if err := file.take(keys[0], there, info); err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, in)
		return nil
	}
}

// tells has the agent of a node, of which there may be no pod, tell of tunnels and paths.
func (s *stage) tells(node string, keys ...string) error {
	reports := map[string]v1alpha1.TunnelReport{}
	for _, key := range keys {
		reports[key] = alive()
	}
	text, err := json.Marshal(reports)
	if err != nil {
		return err
	}
	l := &coordinationv1.Lease{}
	if err := s.c.Get(s.t.Context(), client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: node}, l); client.IgnoreNotFound(err) != nil {
		return err
	} else if err != nil {
		fresh := agentOf(node, time.Since(now), reports)
		return s.c.Create(s.t.Context(), &fresh)
	}
	micro := metav1.NowMicro()
	l.Annotations[v1alpha1.AnnotationTunnels], l.Spec.RenewTime = string(text), &micro
	return s.c.Update(s.t.Context(), l)
}

// joins peers with more clusters, whose tunnels are not told of yet.
func (s *stage) joins(names ...string) {
	s.t.Helper()
	for i, name := range names {
		space := v1alpha1.PeeringNamespace(name)
		theirs, ours := config(space, v1alpha1.NetworkProvider, key2, nil), config(space, v1alpha1.NetworkConsumer, key1, nil)
		s.create(newNamespace(space), &theirs, &ours, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PeeringSpec{
			ClusterID: fmt.Sprintf("11111111-1111-4111-8111-%012d", i+100), Consume: &v1alpha1.Consume{AuthURL: "https://x:1", CASHA256: hash, TokenSecret: "not-there"}}})
	}
}

// TestCapturePaths holds that packets of direct paths are seen, of one that comes up meanwhile too, and
// that one that goes ends nothing else.
func TestCapturePaths(t *testing.T) {
	s := capturing(t)
	key := v1alpha1.NetworkKey(v1alpha1.PeeringNamespace("milan"))
	path := v1alpha1.NetworkPathKey(v1alpha1.PeeringNamespace("milan"), path1)
	comes := reads(t, func(_ string, keys []string) error {
		if slices.Contains(keys, key) {
			return s.tells("rome-1", key, path, v1alpha1.NetworkPathKey(v1alpha1.TenantNamespace("oslo"), path2))
		}
		if !slices.Equal(keys, []string{path}) {
			t.Errorf("read is %v", keys)
		}
		return nil
	})
	if r := s.captures(comes, "shop/web", "--for", "20s", "--count", "2"); r.code != 0 || !strings.Contains(r.out, "to   milan  ") || !strings.Contains(r.out, "to   milan's path "+path1+"  ") || !strings.Contains(r.err, "2 packets.") {
		t.Errorf("a path that comes up: %+v", r)
	}
	name := filepath.Join(t.TempDir(), "web.pcapng")
	if r := s.captures(comes, "shop/web", "--for", "20s", "--count", "2", "--write", name); r.code != 0 {
		t.Errorf("into a file: %+v", r)
	}
	text, err := os.ReadFile(name)
	found := map[string]int{}
	if err == nil {
		_, err = readPackets(bytes.NewReader(text), func(key string, _ []byte, _ gopacket.CaptureInfo) error { found[key]++; return nil })
	}
	if err != nil || !maps.Equal(found, map[string]int{key: 1, path: 1}) {
		t.Errorf("the file has packets of %v, %v", found, err)
	}
	goes := reads(t, func(_ string, keys []string) error {
		if slices.Contains(keys, path) {
			return errors.New("the gateway of it has left this node")
		}
		return nil
	})
	if r := s.captures(goes, "shop/web", "--for", "1s"); r.code != 0 || strings.Count(r.out, "\n") != 1 || !strings.Contains(r.err, "milan's path "+path1+" is not read any more: ") {
		t.Errorf("a path that goes: %+v", r)
	}
}

// TestCaptureOfSome holds that it goes on where one of two agents is missing and says so, and which
// peerings can be chosen, and have to be.
func TestCaptureOfSome(t *testing.T) {
	s := capturing(t)
	key := func(name string) string { return v1alpha1.NetworkKey(v1alpha1.PeeringNamespace(name)) }
	var asked [][]string
	notes := reads(t, func(pod string, keys []string) error {
		if asked = append(asked, keys); pod != "pelago-agent-x" {
			t.Errorf("it runs in pod %s", pod)
		}
		return nil
	})
	s.joins("turin")
	if err := s.tells("rome-2", key("turin")); err != nil {
		t.Fatal(err)
	}
	if r := s.captures(notes, "shop/web", "--count", "1"); r.code != 1 || !strings.Contains(r.out, "to   milan") || !strings.Contains(r.err, "No agent runs on node rome-2: packets between here and turin are not seen.") ||
		!strings.Contains(r.err, "not all was seen, as no agent runs on node rome-2, the gateway of turin; see: kubectl -n pelago-network get pods") {
		t.Errorf("without one of two agents: %+v", r)
	}
	if r := s.captures(notes, "shop/web", "--count", "1", "--peering", "milan"); r.code != 0 || strings.Contains(r.err, "turin") {
		t.Errorf("of the other one alone: %+v", r)
	}
	if r := s.captures(notes, "shop/web", "--count", "1", "--peering", "turin"); r.code != 1 || !strings.Contains(r.err, "no agent runs on node rome-2, which is the gateway; see: kubectl") {
		t.Errorf("of that alone: %+v", r)
	}
	if r := s.captures(notes, "shop/web", "--peering", "paris"); r.code != 1 || !strings.Contains(r.err, "--peering paris: there is no network with such a cluster") {
		t.Errorf("of a cluster that is none: %+v", r)
	}
	var names, keys []string
	for i := range maxKeys {
		names, keys = append(names, fmt.Sprintf("far-%d", i)), append(keys, key(fmt.Sprintf("far-%d", i)))
	}
	s.joins(names...)
	if err := errors.Join(s.tells("rome-2"), s.tells("rome-1", append(keys, key("milan"))...)); err != nil {
		t.Fatal(err)
	}
	if r := s.captures(notes, "shop/web", "--count", "1"); r.code != 1 || !strings.Contains(r.err, "node rome-1 is the gateway of 17 peerings") || !strings.Contains(r.err, "with --peering: far-0, ") {
		t.Errorf("of 17: %+v", r)
	}
	asked = nil
	if r := s.captures(notes, "shop/web", "--count", "1", "--peering", "milan", "--peering", "far-3"); r.code != 0 || len(asked) != 1 || !slices.Equal(asked[0], []string{key("far-3"), key("milan")}) {
		t.Errorf("of two of them: %+v, %v", r, asked)
	}
}
