// Package policystatus says of each policy whether it is in force, in the condition
// Ready of its status. What it says depends on the policy and on what this version of
// Tollgate evaluates, not on the state of a replica.
package policystatus
