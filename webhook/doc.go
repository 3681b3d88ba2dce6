// Package webhook is Tollgate's admission edge: it identifies the caller, reads AdmissionReviews
// within bounds (transport.go, body.go), calls the handler of the resource (package handlers)
// and writes the answer. It serves them by HTTPS (server.go) and counts them (metrics.go).
//
// The answers when something is wrong:
//
//   - A denial is a decision: HTTP 200, allowed false, code 403, and a message
//     with policy, field, value and an allowed alternative.
//   - A review that no API server would send is refused with a 4xx, before any
//     of it is judged.
//   - A fault of Tollgate's own (an error, a panic, a deadline) is HTTP 5xx,
//     never a verdict. The API server then applies the failurePolicy of the
//     webhook entry that it called, so the choice between open and closed is
//     made in the webhook configuration and nowhere else. An answer of "not
//     allowed" would not do: the API server consults failurePolicy only when a
//     call fails.
//
// A dry run is judged like any other request. Endpoints are safe for concurrent use.
package webhook
