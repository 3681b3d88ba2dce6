// Package install puts Tollgate into a control plane as a user would, with Tollgate itself running beside it.
//
// deploy/ is applied with kubectl by an administrator; that is all the
// administrator does. Tollgate then runs with a token of its own ServiceAccount,
// so that what it may not do by the RBAC that ships, it cannot do here either.
package install
