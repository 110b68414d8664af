package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/machine"
)

func newKubectl(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "kubectl CLUSTER -- ARGS",
		Short:   "Run kubectl against a cluster",
		Example: "  pelago-sandbox kubectl rome -- get pods -A",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, c, err := e.find(args[0])
			if err != nil {
				return err
			}
			return e.execute(cmd.Context(), []string{"KUBECONFIG=" + c.Kubeconfig()}, append([]string{c.Kube, "kubectl"}, args[1:]...)...)
		},
	}
}

func newKubeconfig(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig CLUSTER",
		Short:   "Print a kubeconfig that works from this machine",
		Example: "  pelago-sandbox kubeconfig rome > rome.kubeconfig",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			_, c, err := e.find(args[0])
			if err != nil {
				return err
			}
			text, err := os.ReadFile(c.Kubeconfig())
			if err != nil {
				return fmt.Errorf("cluster %s has no kubeconfig yet; run: pelago-sandbox up --name %s", c.Name, e.name)
			}
			_, err = e.out.Write(text)
			return err
		},
	}
}

func newRun(e *env) *cobra.Command {
	var node string
	command := &cobra.Command{
		Use:   "run CLUSTER -- CMD",
		Short: "Run a command on a node of a cluster",
		Long: `Run executes a command in the network and under the host name of a node, with
this machine's files and processes. KUBECONFIG names the cluster's administrator,
CONTAINERD_ADDRESS the node's containerd, NODE_ROOT its file system, and the
folder of pelago-sandbox and kubectl are on the PATH.`,
		Example: "  pelago-sandbox run rome -- ip address\n  pelago-sandbox run rome --node rome-2 -- kubectl get nodes",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, c, err := e.findMachines(args[0], "nodes to run commands on")
			if err != nil {
				return err
			}
			if node == "" {
				node = c.NodeName(1)
			}
			m, err := c.Machine(node)
			if err != nil {
				return err
			}
			if err := linkTools(s.Dir(), c.Kube); err != nil {
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			root := filepath.Join("/proc", strconv.Itoa(m.PID), "root")
			environment := []string{
				"KUBECONFIG=" + c.Kubeconfig(),
				machine.Marker + "=" + s.Name + "/" + node, // so that it ends with its node
				"NODE_ROOT=" + root,
				"CONTAINERD_ADDRESS=" + root + "/run/containerd/containerd.sock",
				"PATH=" + filepath.Dir(self) + ":" + filepath.Join(s.Dir(), "tools") + ":" + os.Getenv("PATH"),
			}
			enter := []string{"nsenter", "--target", strconv.Itoa(m.PID), "--net", "--uts", "--"}
			return e.execute(cmd.Context(), environment, append(enter, args[1:]...)...)
		},
	}
	command.Flags().StringVar(&node, "node", "", "node to run on (default the first)")
	return command
}

// linkTools makes a folder for the PATH in which kubectl is found.
func linkTools(dir, kube string) error {
	tools := filepath.Join(dir, "tools")
	if err := os.MkdirAll(tools, 0o755); err != nil {
		return fmt.Errorf("making folder for tools: %w", err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %q kubectl \"$@\"\n", kube)
	return os.WriteFile(filepath.Join(tools, "kubectl"), []byte(script), 0o755)
}
