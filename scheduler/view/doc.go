// Package view is the ResourceSlices of a scheduler with ResourceSlicePatches applied.
//
// Slices are pulled from the scheduler's own tracker at each list; the set of patches is
// pushed, compiled beforehand. policy/slicepatch decides what a patch does to a device;
// CompilePatches returns a set that finds the patches of a device among many and evaluates
// an expression once a device. design.md says why.
package view
