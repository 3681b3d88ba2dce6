// Package webhookwatch reports changes of the webhook configurations through which the API
// server calls Tollgate (E10).
//
// A user who deletes the webhooks, or sets failurePolicy Ignore, disables the policies,
// and no error shows it: no request is refused any more. That may be intended in an
// emergency, so the watcher only reports it, by a metric, an event on the Lease and the
// log, and never reverts it. Writes of Tollgate and cert-manager are not reported: the
// caBundle, and the URL with which Tollgate replaces the Service.
//
// Only the leader reports. Changes without a leader are not reported, except a missing
// configuration, which the metric always shows.
package webhookwatch
