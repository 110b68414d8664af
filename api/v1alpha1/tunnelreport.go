package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TunnelReport is what the agent of a gateway node says of one tunnel.
type TunnelReport struct {
	// Alive says whether the tunnel carries packets both ways, Since since when that is so.
	Alive bool        `json:"alive"`
	Since metav1.Time `json:"since,omitzero"`
	// LatencyMicros is the time from a probe to its answer, Loss the part of the last
	// minute's probes that had none, 0 to 1.
	LatencyMicros int64   `json:"latencyMicros,omitempty"`
	Loss          float64 `json:"loss,omitempty"`
	// Endpoint is where the other side's packets come from, Handshake when keys were agreed
	// on last.
	Endpoint  string      `json:"endpoint,omitempty"`
	Handshake metav1.Time `json:"handshake,omitzero"`
	// Kernel says that the tunnel is the kernel's, and not one of the agent's own.
	Kernel bool `json:"kernel,omitempty"`
	// Peer is the other side's public key that is in use, Knows the next one that the tunnel
	// accepts already.
	Peer  string `json:"peer,omitempty"`
	Knows string `json:"knows,omitempty"`
}

// maxReports bounds the text of an agent's reports, in bytes.
const maxReports = 256 << 10

// TunnelReports reads the annotation AnnotationTunnels: what an agent says of the tunnels
// whose gateway its node is, by NetworkKey.
func TunnelReports(text string) (map[string]TunnelReport, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxReports {
		return nil, fmt.Errorf("reading reports of tunnels: %d bytes, at most %d", len(text), maxReports)
	}
	var reports map[string]TunnelReport
	if err := json.Unmarshal([]byte(text), &reports); err != nil {
		return nil, fmt.Errorf("reading reports of tunnels: %w", err)
	}
	return reports, nil
}
