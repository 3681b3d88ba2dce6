// Package plugins are the plugins of a kube-scheduler that obeys ResourceSlicePatches.
//
// Each is a plugin of Kubernetes, unchanged, under another name and over another
// handle: one whose ResourceSlices are those of package view. What they add is in
// design.md, with why no pod is left waiting.
package plugins
