// Package history records what happened in a cluster, and decides whether any of it was harm.
//
// What happened is what an independent watch saw of every object, in the order of
// etcd's revisions and without a gap, and what the replicas of Tollgate asked for, as
// their proxies recorded it. Check is a pure function of that. It shares nothing with
// the evictor: it knows by itself, and as plainly as can be, which taint makes a pod
// leave, and when.
//
// It decides about these invariants:
//
//	INV-1  who is evicted is named by UID and resource version
//	INV-2  nobody is evicted before its time
//	INV-3  nobody is evicted who need not leave, or whom a policy keeps
//	INV-4  in the end nobody is left who has to leave, unless it can be seen why
//	INV-5  no more pods leave within a window than a breaker allows
//	INV-6  only the holder of the lease acts, and nobody is evicted twice
//
// When the checker cannot know, because a request was under way while an object
// changed, it decides for Tollgate: a violation that it reports is one.
package history
