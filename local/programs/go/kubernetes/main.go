// One binary for every part of Kubernetes that a node or a control plane runs.
//
// It acts as the part that its own file name says, as busybox does: linking the
// parts once instead of six times makes the build and the cache three times smaller.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics, as the parts' own mains have
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric, likewise
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	part := filepath.Base(os.Args[0])
	if part == "kubectl" {
		// Not cli.Run: kubectl reports its errors itself, and with exit codes of its own.
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
		return
	}
	parts := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-proxy":              proxy.NewProxyCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	}
	command, known := parts[part]
	if !known {
		fmt.Fprintf(os.Stderr, "no part of Kubernetes is named %q: link this binary as kube-apiserver, kubelet, kubectl, ...\n", part)
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
