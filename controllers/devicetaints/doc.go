// Package devicetaints adds a NoSchedule taint beside NoExecute taints of devices for
// which policies give claims a toleration with tolerationSeconds.
//
// Problem: the allocator of Kubernetes ignores tolerationSeconds. A claim that tolerates a
// NoExecute taint for 300 seconds can be allocated a device that was tainted an hour ago;
// its pod is evicted at once because the seconds count from timeAdded, the next pod gets
// the device again, and so on. A toleration of NoExecute does not tolerate NoSchedule, so
// a second taint prevents that: running pods keep their time, and no pod returns.
//
// Decision: where a PlacementPolicy gives claims a toleration with tolerationSeconds, or
// in mode Window an EvictionPolicy does, each DeviceTaintRule with a tolerated taint gets
// a paired rule, <name>-noschedule: the same selector, key and value with effect
// NoSchedule. Each such taint that a driver publishes gets a rule for that one device. A
// paired rule is owned by its rule or ResourceSlice, and has the label tollgate.dev/pair.
// It evicts no pod and previews do not count it. The controller deletes it when its owner
// is gone, because a TaintPolicy may forbid the garbage collector to remove the taint. A
// rule of the same name from another writer stays, and an event reports it.
//
// Edge cases: tolerations that users write themselves get no paired rule, since a user may
// want to return. A pod that also tolerates NoSchedule of the same key returns, as its
// author asked; admission refuses a policy that gives both. At most 1,000 published taints
// get a rule; a metric counts the rest.
//
// RuleClient writes DeviceTaintRules in the version that the API server serves, also for
// package slicepatches. A write neither overwrites nor deletes a rule that changed after it
// was read.
package devicetaints
