// Package dra makes the objects of dynamic resource allocation that the tests of
// devices need: the class and the slices of a driver, claims, and pods that use
// them.
//
// Each device has its name as an attribute too, and a claim asks for devices by
// that name, so that it is known which one a pod gets. The class of a driver has
// the driver's name. All nodes have all devices.
package dra
