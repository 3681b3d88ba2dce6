// Package controller contains the parts that controllers share: Base, which is what each of
// them gets, and Controller, a work queue with watches and workers.
//
// A Controller is not one of controller-runtime. Leadership is lost and gained again while
// the process runs, a CRD may be missing, and the API server may say how long to wait. A
// controller of controller-runtime cannot be started twice, its handlers of events stay in
// the informers when it stops, it runs no worker until all of its kinds are served, and it
// ignores Retry-After.
//
// A constructor starts nothing. Start runs until its context ends, and may be called again
// by a replica that lost the lease and got it back. Nothing is reconciled while the replica
// does not hold the lease. A panic ends neither the process nor its queue: it is logged, counted,
// and an error of one key, or of one loop that begins again.
package controller
