// Package authority asks the API server what a user may do, by SubjectAccessReviews,
// so that grants follow whatever authorizes in the cluster: RBAC or another.
//
// Answers are kept for a while, so a permission that is given or taken away takes
// effect within that time, and requests of one user do not cost one question each.
// Without an answer there is an error, never a guess; what has gone wrong is asked
// again. The rate of questions and the number under way are limited, and namespaces take
// turns: whoever sends many requests does not make Tollgate send as many, and keeps nobody in
// another namespace waiting.
package authority
