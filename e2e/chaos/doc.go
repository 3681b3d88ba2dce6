// Package chaos runs Tollgate under random faults, and lets package history decide whether it did harm.
//
// A schedule is made of a seed: a cluster with pods, taints, rules, slices and
// policies that change all the time, and two replicas that are killed, frozen, cut
// off, slowed down, lied to about the time, and answered with errors. When it is over
// the faults end, and after a moment of quiet the history is checked.
//
// What is random is what is done and when. How the machine runs it is not, so that a
// seed repeats a schedule and not a history. A violation is therefore printed with
// what the history says about its objects.
//
// These variables change what TestChaos does:
//
//	TOLLGATE_CHAOS_SEED       the first seed; random when empty
//	TOLLGATE_CHAOS_SCHEDULES  how many schedules, each with the next seed; 3
//	TOLLGATE_CHAOS_DURATION   for how long to begin new ones, instead; such as 10m
//	TOLLGATE_CHAOS_LENGTH     how long a schedule lasts; 30s
//	TOLLGATE_CHAOS_PLANE      tells apart several that run beside each other, each
//	                          with a control plane of its own; such as 2
//
// Its control plane is its own: the scheduler is stopped, there are no webhooks, and replicas
// of Tollgate crash all the time.
package chaos
