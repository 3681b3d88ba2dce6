package app

import (
	"strconv"

	"github.com/tollgate-dev/tollgate/policy"
)

// metricsIntro begins docs/metrics.md.
var metricsIntro = `# Metrics

<!-- Written by make generate from the metrics themselves. -->

Every replica serves its own at ` + "`metrics.bindAddress`" + `, under ` + "`/metrics`" + `. On a loopback address, where they are by
default, they are plain HTTP and open to the machine. On any other they are HTTPS with the certificate of the
webhooks, and shown to bearer tokens of those whom RBAC lets ` + "`get`" + ` ` + "`/tollgate/metrics`" + `; ` + "`metrics.authorization`" + ` says otherwise.
The right is not ` + "`/metrics`" + `, which would open the metrics of kube-apiserver and other components too.
There is no profiling endpoint.

[deploy/monitoring](../deploy/monitoring) has what Prometheus and Grafana need: who may scrape, a ServiceMonitor or a
PodMonitor, rules, and a dashboard. [alerts.md](alerts.md) says what to do about each alert.

Labels have closed sets of values. No name of a pod, node or namespace is among them. Names of policies and drivers are, up to a
limit: the first ` + strconv.Itoa(policy.MaxNamed) + ` policies that a replica counts something for, and ` + strconv.Itoa(maxDrivers) + ` drivers; the others have the value ` + "`other`" + ` together. The
name of a policy goes with its ` + "`kind`" + `, and both are ` + "`none`" + ` for a rule that holds without a policy.

No metric has the label ` + "`cluster`" + `: Prometheus adds it, and the rules and the dashboard go by it
([several clusters](../deploy/monitoring/README.md#several-clusters)).

What only the leader does, it alone counts; the others say 0 or nothing. Sum it up, or take the maximum, over replicas.

Stability:

| | |
|---|---|
| stable | The rules and the dashboard that ship use it. It keeps its name, unit and labels while they do. |
| alpha | It may change with any version. |
| Kubernetes | The controller that Tollgate stands in for has it under this name, so that dashboards work on. The unit is what the name says, also where it is another one in Kubernetes. |

## Tollgate's own

`

// metricsOutro ends it.
const metricsOutro = `
## Queues

The metrics ` + "`workqueue_*`" + ` of client-go, such as ` + "`workqueue_depth`" + `, by ` + "`name`" + `:

| name | what waits |
|---|---|
| ` + "`taint-eviction-controller`" + ` | pods, until they are due because of a node or are looked at again; Kubernetes' name |
| ` + "`device-taint-eviction-controller`" + ` | likewise, pods that use claims; Kubernetes' name |
| ` + "`taint-eviction-controller-stamp`" + ` | nodes with a taint without a time |
| ` + "`tollgate-rule-status`, `tollgate-patch-status`" + ` | rules and patches whose status is looked at |
| ` + "`tollgate-policy-status`, `tollgate-evictions`, `tollgate-approvals`" + ` | policies and approvals, likewise |
| ` + "`tollgate-register`, `tollgate-ttl`, `tollgate-twins`, `tollgate-pairing`, `tollgate-patches`" + ` | what the leader writes |

## Of the scheduler that applies ResourceSlicePatches

It serves them beside those of kube-scheduler ([scheduler.md](scheduler.md)).

| metric | type | unit | labels | stability | what it says |
|---|---|---|---|---|---|
| ` + "`tollgate_scheduler_presence_failures_total`" + ` | counter | count |  | alpha | Renewals that failed of the Lease by which it says that it applies patches |

## Of libraries

They are as the library has them, and may change with it.

| prefix | of | what |
|---|---|---|
| ` + "`rest_client_`" + ` | client-go | requests to the API server, by method, host and code |
| ` + "`leader_election_`" + ` | client-go | the lease; ` + "`tollgate_leading`" + ` says more |
| ` + "`controller_runtime_`, `certwatcher_`" + ` | controller-runtime | the webhook server and reconcilers; Tollgate has none of the latter |
| ` + "`go_`, `process_`, `promhttp_`" + ` | client_golang | the Go runtime, the process, scrapes |
`
