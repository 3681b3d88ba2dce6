// Package controllers has what the controllers in the packages below it share: a queue
// with workers that work only while the replica holds the lease (Loop), and a client that
// writes DeviceTaintRules in the version that the API server serves (RuleClient). A write
// of the client neither overwrites nor deletes what has changed since it was read.
//
// Controllers keep the cluster as the policies say, besides evictions:
//
//   - status: the status of policies and EvictionApprovals
//   - nodetaints: taints that nodes must have, and taints whose time is over
//   - devicetaints: NoSchedule taints beside NoExecute taints of devices
//   - slicepatches: rules and status of ResourceSlicePatches
//   - audit: pods that a TolerationPolicy would refuse today
//   - webhookwatch: changes of the webhook configurations
//
// The constructor of a controller starts nothing. Start works until its context ends, and
// may be called again by a replica that lost the lease and got it back.
package controllers
