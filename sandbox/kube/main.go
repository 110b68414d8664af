// Command kube is a whole Kubernetes cluster in one file: kube-apiserver,
// kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl and
// etcd, chosen by the first argument. The sandbox builds it once per
// Kubernetes version. It must compile against every version the sandbox
// supports, so it uses only what the real mains of those programs use.
package main

import (
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs maps the name of each program to the constructor its own main uses.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 newKubelet,
	"kube-proxy":              kubeproxy.NewProxyCommand,
	"etcd":                    newEtcd,
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
}

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	if name == "version" {
		fmt.Println(version.Get().GitVersion)
		return
	}
	program, ok := programs[name]
	if !ok {
		usage()
	}
	command := program()
	if name == "kubectl" {
		if err := cli.RunNoErrOutput(command); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	}
	os.Exit(cli.Run(command))
}

func usage() {
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	sort.Strings(names)
	fmt.Fprintf(os.Stderr, "usage: kube PROGRAM [flags], PROGRAM one of %s, version\n", strings.Join(names, ", "))
	os.Exit(2)
}
