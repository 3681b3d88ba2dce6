// Command kube-scheduler is the scheduler of Kubernetes with plugins that see
// devices as ResourceSlicePatches make them look.
//
// Flags, configuration, metrics and everything else are those of kube-scheduler. The
// plugins do nothing until a profile enables them: see docs/scheduler.md.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json.
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // Request and workqueue metrics.
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info.
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/tollgate-dev/tollgate/scheduler/plugins"
)

func main() {
	var options []app.Option
	for name, factory := range plugins.Registry() {
		options = append(options, app.WithPlugin(name, factory))
	}
	os.Exit(cli.Run(app.NewSchedulerCommand(options...)))
}
