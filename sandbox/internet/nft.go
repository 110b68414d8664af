package internet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// applyRuleset puts a script of nftables commands into force, all or nothing.
func applyRuleset(ctx context.Context, script string) error {
	_, err := nft(ctx, script, "-f", "-")
	return err
}

// count is what a counter of nftables holds.
type count struct{ packets, bytes uint64 }

// readCounters returns the counters of our table by name, none if there is no
// table yet.
func readCounters(ctx context.Context) (map[string]count, error) {
	out, err := nft(ctx, "", "-j", "list", "counters", "table", "inet", table)
	if err != nil {
		if strings.Contains(err.Error(), "No such file or directory") {
			return nil, nil
		}
		return nil, err
	}
	return parseCounters(out)
}

func parseCounters(text []byte) (map[string]count, error) {
	var list struct {
		Nftables []struct {
			Counter *struct {
				Name           string
				Packets, Bytes uint64
			}
		}
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("reading the counters of nft: %w", err)
	}
	counts := map[string]count{}
	for _, entry := range list.Nftables {
		if c := entry.Counter; c != nil {
			counts[c.Name] = count{packets: c.Packets, bytes: c.Bytes}
		}
	}
	return counts, nil
}

func nft(ctx context.Context, input string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "nft", args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("running nft: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}
