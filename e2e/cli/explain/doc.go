// Package explain makes causes true on a real control plane, with the real scheduler and
// Tollgate in it, and asks the built program why pods are as they are. Each scenario has
// nodes of its own, so that no other one is a reason for its pods.
package explain
