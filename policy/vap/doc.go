// Package vap writes policies of Tollgate as ValidatingAdmissionPolicies, which the API
// server evaluates itself: the parts that TolerationPolicies and TaintPolicies have in
// common, as objects and as text of CEL.
//
// Expressions stay within what an API server of Kubernetes 1.34 takes from a client, which
// is what 1.33 knew: it keeps itself ready to go back by one version. They read object by
// way of dyn(), because one policy is for several kinds.
//
// The API server evaluates each variable at most once for the validations, and once more
// for their messages, in which nobody can be asked what is authorized. Each may cost
// 1,000,000, and all together 10,000,000 (k8s.io/apiserver/pkg/apis/cel). What costs more
// is refused.
package vap
