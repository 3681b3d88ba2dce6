// Package device holds what everything that deals with tainted devices has in
// common: how a device is named, how a DeviceTaintRule selects devices, which
// rules select a device, and which taints a toleration tolerates (KEP-5055).
package device
