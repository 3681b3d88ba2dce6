// Package check is the command that judges objects from files as the webhook would judge
// their creation, without a cluster, that judges existing objects, and that runs tests of
// policies.
//
// The webhook's own endpoints answer in this process, so there is one judgement and not two
// that must agree. The code here is what surrounds them: what the API server has done to an
// object before it calls the webhook, which objects it calls the webhook for, and what a
// review reads, which here comes from the files.
//
// # Defaults and built-in admission plugins
//
// A kube-apiserver fills in defaults and runs its own admission plugins before it calls
// webhooks (TP-03 and TP-15 to TP-19 in the comments). The same is done here for all that a
// verdict can depend on: tolerations, node selectors, the service account, the priority,
// requests, and fields of pods and device requests that always have a value. What plugins
// refuse is not refused, and what PodNodeSelector, PodTolerationRestriction and
// LimitRanger add for annotations and objects of a namespace is not added. Kubernetes' own
// validation is not done: a pod without containers passes.
//
// # Existing objects
//
// Of objects in a cluster, TolerationPolicies are asked what they would refuse if the
// object were created today. The creator is not known any more, so what depends on it is
// not held against the object, as in package audit.
//
// Reports are text, JSON, JUnit for the pages of a CI, or SARIF for findings beside the code.
package check
