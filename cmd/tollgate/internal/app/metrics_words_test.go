package app

import (
	"strconv"

	"github.com/tollgate-dev/tollgate/policy"
)

// metricsIntro begins docs/metrics.md.
var metricsIntro = `# Metrics

<!-- Written by make generate from the metrics themselves. -->

This page lists the metrics of ` + "`tollgate serve`" + `, of the scheduler that applies ResourceSlicePatches, and of libraries.

Each replica serves its own metrics at ` + "`metrics.bindAddress`" + `, under the path ` + "`/metrics`" + `:

- On a loopback address, as by default, it serves HTTP without access control.
- On other addresses, it serves HTTPS with the certificate of the webhooks. A request needs a bearer token of a user
  with the RBAC permission to ` + "`get`" + ` the path ` + "`/tollgate/metrics`" + `. A permission for ` + "`/metrics`" + ` would also open the
  metrics of kube-apiserver and other components.

` + "`metrics.authorization`" + ` changes this. There is no profiling endpoint.

[deploy/monitoring](../deploy/monitoring) contains the manifests for Prometheus and Grafana: RBAC for the scraper, a
ServiceMonitor or a PodMonitor, rules, and a dashboard. [alerts.md](alerts.md) describes the alerts and the response to
each.

Labels have closed sets of values. No label contains the name of a pod, node or namespace. Names of policies and drivers
are limited: the first ` + strconv.Itoa(policy.MaxNamed) + ` policies for which a replica counts something, and ` + strconv.Itoa(maxDrivers) + ` drivers. The others share the value
` + "`other`" + `. Every name of a policy comes with its ` + "`kind`" + `. Both labels are ` + "`none`" + ` for a rule without a policy.

No metric has the label ` + "`cluster`" + `. Prometheus adds it, and the rules and the dashboard use it
([several clusters](../deploy/monitoring/README.md#several-clusters)).

Only the leader counts work that only the leader does. Other replicas report 0 or nothing for it: take the sum or the
maximum over all replicas.

Stability:

| stability | meaning |
|---|---|
| stable | The rules or the dashboard that ship use the metric. While they do, it keeps its name, unit and labels. |
| alpha | The metric may change in any version. |
| Kubernetes | The controller of Kubernetes that Tollgate replaces has the metric under this name, so existing dashboards work. The unit is the one in the name, even if Kubernetes uses another one. |

## Tollgate's own

`

// metricsOutro ends it.
const metricsOutro = `
## Queues

The metrics ` + "`workqueue_*`" + ` of client-go, such as ` + "`workqueue_depth`" + `, have the label ` + "`name`" + `:

| name | items in the queue |
|---|---|
| ` + "`device-taint-eviction-controller`" + ` | pods, until they are due or Tollgate checks them again; the name is that of Kubernetes |
| ` + "`tollgate-stamp`" + ` | nodes with a taint without a time |
| ` + "`tollgate-rule-status`" + `, ` + "`tollgate-patch-status`" + ` | rules and patches whose status Tollgate checks |
| ` + "`tollgate-policy-status`" + `, ` + "`tollgate-evictions`" + `, ` + "`tollgate-approvals`" + ` | policies and approvals whose status Tollgate checks |
| ` + "`tollgate-breakers`" + ` | policies and approvals whose counts Tollgate checks |
| ` + "`tollgate-audit`" + ` | the check of all pods against TolerationPolicies |
| ` + "`tollgate-register`" + `, ` + "`tollgate-ttl`" + `, ` + "`tollgate-twins`" + `, ` + "`tollgate-pairing`" + `, ` + "`tollgate-patches`" + ` | objects to which the leader writes taints, or for which it writes rules |

## Of the scheduler that applies ResourceSlicePatches

The [scheduler](scheduler.md) serves this metric with the metrics of kube-scheduler.

| metric | type | unit | labels | stability | description |
|---|---|---|---|---|---|
| ` + "`tollgate_scheduler_presence_failures_total`" + ` | counter | count |  | alpha | Failed renewals of the Lease that shows that the scheduler applies ResourceSlicePatches |

## Of libraries

The libraries define these metrics, which may change with any version of a library.

| prefix | library | metrics |
|---|---|---|
| ` + "`rest_client_`" + ` | client-go | requests to the API server, by method, host and code |
| ` + "`leader_election_`" + ` | client-go | the lease; ` + "`tollgate_leading`" + ` is more precise |
| ` + "`controller_runtime_`" + `, ` + "`certwatcher_`" + ` | controller-runtime | the webhook server and reconcilers; Tollgate has no reconcilers of this library |
| ` + "`go_`" + `, ` + "`process_`" + `, ` + "`promhttp_`" + ` | client_golang | the Go runtime, the process, and scrapes |
`
