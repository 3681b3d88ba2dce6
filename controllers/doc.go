// Package controllers contains the parts that the controllers in the packages below it
// share: Base, which is what each of them gets; Controller, a work queue with watches and
// workers; and RuleClient, which writes DeviceTaintRules in the version that the API server
// serves. A write by the client neither overwrites nor deletes an object that changed after
// the client read it.
//
// A Controller is not one of controller-runtime. Leadership is lost and gained again while
// the process runs, a CRD may be missing, and the API server may say how long to wait. A
// controller of controller-runtime cannot be started twice, its handlers of events stay in
// the informers when it stops, it runs no worker until all of its kinds are served, and it
// ignores Retry-After.
//
// The controllers reconcile the cluster with the policies; evictions are not among their
// tasks:
//
//   - status: the status of policies and EvictionApprovals
//   - nodetaints: taints that nodes must have, and taints whose time is over
//   - devicetaints: NoSchedule taints beside NoExecute taints of devices
//   - slicepatches: rules and status of ResourceSlicePatches
//   - audit: pods that a TolerationPolicy would refuse today
//   - webhookwatch: changes of the webhook configurations
//
// A constructor starts nothing. Start runs until its context ends, and may be called again
// by a replica that lost the lease and got it back. Nothing is reconciled while the replica
// does not hold the lease.
package controllers
