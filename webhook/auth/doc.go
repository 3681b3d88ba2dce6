// Package auth finds out which reviews come from the API server, and the permissions of users.
//
// # Permissions
//
// Authority asks the API server for the permissions of users, by SubjectAccessReviews, so that
// grants follow every authorizer of the cluster, RBAC or another.
//
// Answers are cached for a while: a permission that is given or taken away takes effect
// within that time, and requests of one user do not cost one question each. Without an
// answer there is an error, never a guess; a failed question is asked again. The rate of
// questions and the number under way are limited, and namespaces take turns, so that one
// namespace with many requests does not delay the others. The webhook authorizer of
// k8s.io/apiserver caches alike, but has no turns, no shared questions and no bound on the wait.
//
// # Callers
//
// Callers tells reviews that an API server sends from those of other clients that reach
// the port. A caller identifies itself in one of two ways. A client certificate of a
// configured authority with a configured name comes from an API server that has one for its
// webhooks. A token that an API server issued for this webhook (KEP-6060) is bound
// to one webhook configuration and says of which API groups it may send reviews. Both are
// verified locally: the API server is asked for its public keys alone. The x509 authenticator and
// the dynamic certificates of k8s.io/apiserver bound neither the chain nor the file, use the whole
// part of a broken file, and count no readings.
//
// The answer to a caller that fails names no reason, and no fault of the review.
package auth
