// Package breaker bounds how many pods leave in a window, by the breakers of
// EvictionPolicies, whatever happens to the process that evicts them.
//
// Leave to go is written before anybody goes: a few pods at a time are granted in the
// status of the policy, by a write that only goes through if the status stands as it was
// read. So a leader that comes after a crash finds everything that may have gone, and of
// two leaders at once each counts what the other was granted. A grant names the time by
// which its pods have gone at the latest; permits are handed out for some seconds
// of it, by a clock that nobody sets. What is left of it then is given back. What is
// unknown, because an answer was lost or somebody else has written, counts as gone.
//
// That no window sees more than the limit follows from this: a grant is only written if
// it fits together with all grants that end within the window before it. Pods
// of a later one cannot have gone before it was written.
//
// When a pod is due and there is no room, the breaker trips and holds all that it binds:
// until it all fits into what the window has left again, or until the limit is raised or
// removed. Meanwhile an EvictionApproval lets pods go: because of its taint, whatever
// breakers hold them, or past the breaker of its policy. Those are counted in the approval,
// before they go, and not in a breaker that is passed: what was approved takes nothing from
// what goes without.
//
// What stands in the status is read before each write, and every few seconds while a breaker
// holds: what an earlier leader wrote may arrive after it was read here, as long as nothing
// else was written since. Who holds pods then says so, or holds them no longer.
//
// Grants end by the clock of the API server. Within a term of leadership that is measured
// by the clock of the machine, so that a clock that is set lets nobody go earlier or later. A
// leader that comes after goes by what stands in the status: if the clock was set back in
// between it counts grants for so much longer, and if it was set forward, for less.
//
// planFor is pure. A Keeper guards its state by the mutex of its term of leadership,
// which is never held across a call of its options or a request.
package breaker
