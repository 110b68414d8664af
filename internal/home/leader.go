package home

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// What peers are told that this cluster knows is what its leading manager knows: that one reads
// what they write. While a cluster is upgraded, programs of two builds run, and a word said too
// early has peers send what the manager of before refuses. So the manager that leads says on its
// Lease which build it is, and programs that do not lead tell that.

// How often the leading manager looks whether what it said still stands, how long it waits after
// it could not say it, and after how many times in a row that is told.
const (
	sayEvery = 30 * time.Second
	sayAgain = time.Second
	sayTold  = 10
)

// build is what a leading manager says of itself.
type build struct {
	// Holder is who says it, as the Lease has it. What one says who does not lead any more counts no
	// longer.
	Holder   string   `json:"holder"`
	Version  string   `json:"version"`
	Features []string `json:"features"`
}

// buildOf is what a Lease's holder has said on it, nil if it has said nothing.
func buildOf(lease *coordinationv1.Lease) *build {
	b := &build{}
	if err := json.Unmarshal([]byte(lease.Annotations[v1alpha1.AnnotationBuild]), b); err != nil {
		return nil
	}
	if b.Holder == "" || b.Holder != ptr.Deref(lease.Spec.HolderIdentity, "") || len(b.Features) == 0 {
		return nil
	}
	return b
}

// sayer is the part of a Home that the leading manager runs.
type sayer struct{ home *Home }

// NeedLeaderElection reports that only the leader says what it knows.
func (s *sayer) NeedLeaderElection() bool { return true }

// Start says it until ctx ends.
func (s *sayer) Start(ctx context.Context) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding out who leads: %w", err)
	}
	for failures := 0; ; {
		wait := sayEvery
		if err := s.home.say(ctx, name); err != nil {
			if failures++; failures%sayTold == 0 {
				log.FromContext(ctx).Error(err, "not said on the Lease which build leads; pelago-auth tells peers what it was told before")
			}
			wait = sayAgain
		} else {
			failures = 0
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.home.options.Clock.After(wait):
		}
	}
}

// say writes on the Lease which build its holder is, if that is a program of this host, as leader
// election names them.
func (h *Home) say(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	lease := &coordinationv1.Lease{}
	if err := h.options.Client.Get(ctx, client.ObjectKey{Namespace: h.options.Namespace, Name: v1alpha1.ManagerLease}, lease); err != nil {
		return fmt.Errorf("reading the Lease: %w", err)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	if !strings.HasPrefix(holder, host+"_") {
		return fmt.Errorf("%.64q leads", holder)
	}
	want := build{Holder: holder, Version: h.options.Version, Features: h.features()}
	text, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if lease.Annotations[v1alpha1.AnnotationBuild] == string(text) {
		return nil
	}
	// Only if nobody else has taken the Lease since.
	before := client.MergeFromWithOptions(lease.DeepCopy(), client.MergeFromWithOptimisticLock{})
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[v1alpha1.AnnotationBuild] = string(text)
	if err := h.options.Client.Patch(ctx, lease, before); err != nil {
		return fmt.Errorf("writing the Lease: %w", err)
	}
	return nil
}

// heed makes what a Lease's holder says count. Who says nothing is a build of before, or begins: what was
// said last stays.
func (h *Home) heed(lease *coordinationv1.Lease) {
	said := buildOf(lease)
	if said == nil || lease.Namespace != h.options.Namespace || lease.Name != v1alpha1.ManagerLease {
		return
	}
	h.mu.Lock()
	same := h.leader != nil && h.leader.Version == said.Version && slices.Equal(h.leader.Features, said.Features)
	h.leader = said
	h.mu.Unlock()
	if !same {
		h.listeners.tell()
	}
}

// errNoLeader says why this cluster does not know yet what to tell peers.
var errNoLeader = errors.New("no manager of this build or a later one leads yet; is pelago-manager running?")

// ledWait is how long a program that does not lead is not ready because none does. It ends, as the manager of
// this build may be waiting for the place of a program that is not replaced before this one is ready. Nobody is let
// in then either as long as none leads.
const ledWait = 3 * time.Minute

// led is a check of readiness: nil once a leading manager has said what it knows, or a while is over.
func (h *Home) led(*http.Request) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.leader == nil && h.options.Clock.Since(h.began) < ledWait {
		return errNoLeader
	}
	return nil
}
