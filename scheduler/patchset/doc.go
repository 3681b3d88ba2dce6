// Package patchset applies ResourceSlicePatches to ResourceSlices for the scheduler's
// view. What a patch does to a device is decided by policy/slicepatch; this package finds
// the patches of a device among many, and evaluates an expression once a device.
package patchset
