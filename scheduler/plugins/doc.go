// Package plugins has the plugins of a kube-scheduler that applies ResourceSlicePatches.
//
// Each is a plugin of Kubernetes, unchanged, under another name and over another
// handle: one whose ResourceSlices have the patches applied. The design is in
// design.md, and so is the reason why no pod is left waiting.
//
// The view pulls slices from the scheduler's own tracker at each list; the set of patches is
// pushed, compiled beforehand. policy/slicepatch decides what a patch does to a device, and
// sliceview.PatchSet finds the patches of a device among many and evaluates an expression once
// a device.
package plugins
