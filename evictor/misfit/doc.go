// Package misfit finds out whether the mode in which Tollgate runs fits what the
// cluster does (J10).
//
// In mode Replace the controllers of Kubernetes that evict have to be off. If one is
// on, it deletes pods at once, whatever EvictionPolicies say. It can be told by the
// DisruptionTarget condition that it sets, with the same reasons as Tollgate's: on pods
// that have to leave and that this process has neither marked nor deleted. An earlier
// leader may have marked them. So only those count whose condition is younger than this
// term, by more than a leader needs to stop and clocks to differ, and only three of them
// within ten minutes are a finding.
//
// In mode Window those controllers have to be on: they carry out the end of the window.
// In mode Observe somebody has to. There pods that stay although their time is long over
// are the finding, when that lasts.
//
// A finding goes when its signs do. For a controller that is on that means ten minutes
// in which Tollgate evicts and nobody interferes, or an hour without any sign, since
// where nobody has to leave nothing can be seen.
package misfit
