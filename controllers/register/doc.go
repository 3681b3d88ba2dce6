// Package register sees to it that nodes have the taints that TaintPolicies register.
//
// Nodes get them at admission, when they are created, so that no pod can come first.
// Here is what is left: with reconcile, nodes that existed before, or came to match
// later; without, nodes that were created while nobody answered for Tollgate.
//
// The latter cannot be told from nodes whose taint somebody has removed who may, and
// nothing that is written on the node can tell, because the node itself could have
// written it. So only a newcomer is looked at: a node that is created while this
// leader watches, or that was since the last leader was heard of. What it is owed is
// decided at the first look, for policies that this replica had not heard of in the
// first seconds after it, and stays a debt until the node has it or is gone. A taint that
// it has been seen with is not given again.
//
// A taint is only ever added, by a patch that names the node's UID; where the node has
// none, the patch tests that too. Whatever others write at that time stays. Taints that
// evict pods are held against the limits of TaintPolicies first, as if a user wrote them:
// policies are written by few, but many may label nodes.
package register
