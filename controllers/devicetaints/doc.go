// Package devicetaints puts a NoSchedule taint beside NoExecute taints of devices that
// claims are given a toleration of for a while.
//
// Problem: the allocator of Kubernetes does not look at tolerationSeconds. A claim
// that tolerates a NoExecute taint for 300 seconds is given a device that was tainted
// an hour ago, its pod is evicted at once because the seconds count from when the
// taint was added, the next pod gets the device again, and so on for ever. A
// toleration of NoExecute does not tolerate NoSchedule, so a second taint ends that:
// pods that are there keep their time, and none comes back.
//
// Decision: whenever a PlacementPolicy gives claims a toleration that ends, or in mode
// Window an EvictionPolicy does, each DeviceTaintRule that it tolerates gets a twin, <name>-noschedule: the same selector,
// key and value with effect NoSchedule. Each such taint that a driver publishes gets a
// rule for that one device. What Tollgate makes is owned by what it is made for, and has
// the label tollgate.dev/pair. It evicts nobody and is not counted by previews. When its
// owner is gone it is deleted here, because the garbage collector may not be among those
// whom a TaintPolicy lets remove the taint. A rule of the same name that somebody else
// made is left alone, and an event says so.
//
// Edge cases: tolerations that users write themselves get no twin, since a user may
// mean to come back. Somebody who tolerates NoSchedule of the same key as well comes
// back, and asked for it; a policy that gives both is refused when it is written.
// Beyond 1,000 devices that drivers taint, more get no rule, which is logged and
// counted.
package devicetaints
