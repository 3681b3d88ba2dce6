// Package webhookwatch reports changes of the webhook configurations by which the API server
// calls Tollgate (E10).
//
// Whoever deletes the webhooks, or lets them fail open, has switched off what policies
// refuse, and nothing else shows it: nobody is refused any more. That may be an emergency,
// so it is only said, by a metric, an event on the Lease and the log, and never put back.
// What Tollgate and cert-manager write by themselves is no change: the caBundle, and the URL
// that Tollgate puts in the place of the Service where it has one.
//
// One replica says it, the one that leads. What changed while nobody led is not said but
// for what is missing, which the metric shows at any time.
package webhookwatch
