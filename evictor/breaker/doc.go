// Package breaker bounds how many pods are evicted within a window, by the breakers of
// EvictionPolicies, across restarts of the process that evicts them.
//
// Grants are written ahead: before a pod is evicted, the status of the policy counts a grant of a
// few pods. The write has the resource version of the object that was read as a precondition. A
// leader that starts after a crash therefore reads every pod that may have been evicted, and of two
// leaders at once each counts the grants of the other. A grant has a time until which its pods are
// evicted. The keeper hands out permits of a grant for some seconds, by the monotonic and the wall
// clock of the machine, and then gives the rest back. A grant counts in full when an answer was lost
// or when another writer changed the status.
//
// No window exceeds the limit, because a grant is only written if it fits together with all grants
// that end within the window before it, and because no pod of a grant is evicted before the write.
// A policy counts a pod once in a window, as of the last attempt that may have worked: if the pod asks
// again within the window, it gets a permit without room. A pod that asks after the last permit of its
// grant may leave after the grant ends, so that the pod is first moved to a later grant, which is
// written ahead as well. If the policy counts more pods than its limit allows, such as after the limit
// was lowered, no pod is moved: the breaker trips, and holds the counted pods that ask as well. After
// another writer changed the status, all pods are counted anew.
//
// When a pod is due and the limit has no room, the breaker trips. It holds all pods that it binds
// until all of them fit into the window again, or until the limit is raised or removed. While it
// holds them, an EvictionApproval releases pods: an approval of a taint releases them from all
// breakers, and an approval of a policy from the breaker of that policy. The approval counts these
// pods, by grants that are written ahead into its own status, and the breaker does not.
//
// The keeper reads a status before each write, and every few seconds while the breaker is tripped:
// the write of an earlier leader can arrive after the first read, as long as no other write came
// in between.
//
// Grants end by the clock of the API server. Within a term of leadership the clock of the machine
// measures them, so that a correction of either wall clock neither shortens nor lengthens a window.
// The next leader takes the times in the status as they are: if the clock of the API server was set
// back in between, it counts grants for that much longer, and if it was set forward, for less.
//
// The method plan of an account is a pure function. The mutex of the Keeper guards the ledgers; it is
// not held across a request or a call of an option. A queue has the ledgers that have to be checked.
package breaker
