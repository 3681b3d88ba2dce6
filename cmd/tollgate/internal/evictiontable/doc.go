// Package evictiontable says of every pod that has to leave because of NoExecute taints
// when it has to, what keeps it, and whose word that is: a list, tables, documents, and a
// picture that changes with time. All of it follows from what was read and from now.
//
// When a pod is due is computed from taints and tolerations by the rules of the evictor.
// What holds it is computed from the specs of EvictionPolicies, or is what statuses of
// policies, rules and disruption budgets and events say. What Tollgate keeps in memory
// nobody else knows: where nothing says more, a pod is due and no more.
package evictiontable
