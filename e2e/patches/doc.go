// Package patches holds the tests of ResourceSlicePatches on a real control plane, with
// the scheduler of this repository in the place of kube-scheduler: that pods get devices
// as patches make them look, and as drivers published them once a patch is gone.
//
// The scheduler runs with the configurations and the rights of deploy/scheduler, and
// Tollgate beside it, which judges patches. The tests share one control plane, and each
// works in a namespace and with a driver of its own. Those that replace the scheduler,
// and the one that shows that nothing but a patch wakes a pod, run alone.
//
// The control plane is its own: the scheduler is replaced.
package patches
