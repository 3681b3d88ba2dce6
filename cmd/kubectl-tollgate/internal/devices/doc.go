// Package devices is the command that shows devices as a scheduler that obeys
// ResourceSlicePatches sees them, with their users and the source of each value and taint.
//
// An Inventory takes the objects of a cluster, in any order, and returns devices, a pool at a
// time, so that memory use is bounded by the objects. Only the newest generation of each pool
// counts (DE-16); older slices are dropped early. An Inventory is not safe for concurrent use.
package devices
