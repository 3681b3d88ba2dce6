// Package devicetable shows devices as the scheduler that obeys ResourceSlicePatches has to
// see them, with who uses them and with where each value and each taint comes from.
//
// An Inventory is given the objects of a cluster, in any order, and then asked for devices,
// a pool at a time, so that no more is held than the objects themselves. Only the newest
// generation of each pool counts (DE-16); older slices are let go of as they are found to
// be old. An Inventory is not goroutine-safe.
package devicetable
