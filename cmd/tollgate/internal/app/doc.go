// Package app is the server: it reads the configuration, connects to the API server, and
// runs the admission webhook on every replica, the evictor and the controllers on the one
// that leads.
//
// # Shutdown
//
// A replica that has to end goes on serving for a while. It is removed from the endpoints
// of its Service, but API servers learn that later. So it fails its readiness probe at
// once, stops leading, and answers reviews until none arrive any more, each answer with the
// request to connect anew. The server then closes the open connections in peace: HTTP/2
// says on each which requests it has taken, and the client sends the others elsewhere.
//
// # Metrics
//
// A scraper sends a bearer token. The API server says whose it is (TokenReview) and whether
// that user may get the path below /tollgate (SubjectAccessReview): for /metrics the right
// is /tollgate/metrics, because a right to /metrics itself would open the metrics of
// Kubernetes' components too. Answers are kept for a minute. Tokens are reviewed at a
// bounded rate, so that clients which can reach the port cannot use up what the API server
// has for Tollgate; tokens that were accepted before have a rate of their own, and each
// address has a share of the rest. controller-runtime's WithAuthenticationAndAuthorization
// has neither these bounds nor the prefix of the path, so it is not used.
//
// # The log
//
// Standard error of a container is a pipe. Where it is not read, because the disk of the
// node is full or its runtime hangs, a write does not return, and all that log would wait:
// reviews, the lease, evictions (E14). Sink drops lines instead, and counts them.
package app
