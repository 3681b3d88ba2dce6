// Package slicepatch decides what a device looks like once ResourceSlicePatches were
// applied to it (KEP-5027): which patches are meant for it, and what comes out when
// several of them are.
//
// Whether a patch is meant for a device depends on the device as it is published and on
// nothing that patches make of it, so that no patch can switch another one on or off. An
// expression that fails on a device leaves that device alone.
//
// Per attribute and per capacity the patch with the highest priority decides, then the
// older, then the first by name; one that removes an attribute decides too. Names of
// attributes and capacities without a domain are those of the driver's domain. A device
// that would then not be allowed in a ResourceSlice keeps the attributes and the
// capacity that it published. Taints of all patches are added, whatever their priority,
// and none is ever dropped.
//
// The selectors are those of ResourceClaims and DeviceClasses, and the compiler is that
// of Kubernetes. An evaluation ends by its cost and not by a time, so that the same
// objects lead to the same devices on every machine. What all expressions of a patch may
// cost is bounded for a device and for a slice.
//
// An expression gets the values of a device that it reads and no more, and its answers are kept by
// these values: it is evaluated once for devices of one model, in however many slices. Selectors
// with the same text share one expression and its answers, in however many patches and classes.
//
// A scheduler that is built from this repository says in a Lease that it obeys
// ResourceSlicePatches; SchedulerOf, ClaimPresence and ReleasePresence read and write that
// Lease.
//
// The functions are pure: kept answers change nothing but the time. The results are read-only and
// share all that does not change with the published devices and with the patches.
package slicepatch
