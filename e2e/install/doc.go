// Package install puts Tollgate into a control plane as a user would, with Tollgate itself running beside it.
//
// An administrator applies the rights and the webhooks of deploy/ with kubectl, and does nothing else. Tollgate
// then runs with a token of its own ServiceAccount,
// so that what it may not do by the RBAC that ships, it cannot do here either.
//
// Its tests have a control plane of their own: they install Tollgate and end it.
package install
