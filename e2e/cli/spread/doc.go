// Package spread holds the tests of topology spread on a real control plane: that the
// scheduler puts pods where policy/spread lets them, that Tollgate warns of constraints
// which pods wait for without end, and that what a PlacementPolicy gives lets them go.
//
// The tests share one control plane with Tollgate installed in it and nodes that kwok
// plays, and change the labels and taints of these. They do not run beside each other.
//
// Its control plane is its own: pods may go to every node, and a test changes the labels and
// taints of all nodes.
package spread
