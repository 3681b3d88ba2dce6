// Package view is the ResourceSlices of a scheduler with ResourceSlicePatches applied.
//
// Slices are pulled from the scheduler's own tracker at each list; the set of
// patches is pushed, compiled beforehand. design.md says why.
package view
