// Package controllers contains RuleClient, which writes DeviceTaintRules in the version that
// the API server serves. A write by the client neither overwrites nor deletes an object that
// changed after the client read it. The controllers in the packages below use it, and are
// built on the package evictor/controller.
//
// The controllers reconcile the cluster with the policies; evictions are not among their
// tasks:
//
//   - status: the status of policies and EvictionApprovals
//   - nodetaints: taints that nodes must have, and taints whose time is over
//   - devicetaints: NoSchedule taints beside NoExecute taints of devices
//   - slicepatches: rules and status of ResourceSlicePatches
//   - audit: pods that a TolerationPolicy would refuse today
//   - registration: the webhooks through which the API server calls Tollgate
package controllers
