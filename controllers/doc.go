// Package controllers contains the parts that the controllers in the packages below it
// share: a work queue whose workers run only while the replica holds the lease (Loop), and
// a client that writes DeviceTaintRules in the version that the API server serves
// (RuleClient). A write by the client neither overwrites nor deletes an object that
// changed after the client read it.
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
// by a replica that lost the lease and got it back.
package controllers
