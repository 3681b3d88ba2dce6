package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// evictor is who evicts.
type evictor string

const (
	tollgate evictor = "Tollgate"
	builtin  evictor = "built-in"
	// The loops are this program itself: what the API server can do for anyone who
	// sends the two requests that an eviction takes, and nothing else.
	loop32 evictor = "loop of 32"
	loop64 evictor = "loop of 64"

	// Tollgate with an EvictionPolicy that says how pods are marked, and loops of the same requests.
	byEvictionAPI    evictor = "Tollgate, ByEvictionAPI"
	whileTerminating evictor = "Tollgate, WhileTerminating"
	evictions64      evictor = "loop of 64 evictions"
	deletions64      evictor = "loop of 64 that deletes first"
)

// atATime is how many pods a loop evicts at a time, zero for who is no loop.
func (e evictor) atATime() int {
	return map[evictor]int{loop32: 32, loop64: 64, evictions64: 64, deletions64: 64}[e]
}

// mark is how Tollgate or a loop marks pods.
func (e evictor) mark() v1alpha1.EvictionMark {
	switch e {
	case byEvictionAPI, evictions64:
		return v1alpha1.EvictionMarkByEvictionAPI
	case whileTerminating, deletions64:
		return v1alpha1.EvictionMarkWhileTerminating
	case tollgate, builtin, loop32, loop64:
	}
	return v1alpha1.EvictionMarkBefore
}

// loop is the loop that makes the same requests as an evictor.
func (e evictor) loop() evictor {
	return map[evictor]evictor{tollgate: loop64, builtin: loop64, byEvictionAPI: evictions64, whileTerminating: deletions64}[e]
}

// scenario is one comparison.
type scenario struct {
	title string
	pods  int
	// devices is true if devices are tainted and not nodes.
	devices bool
	// limit is the rate and the burst of both clients, zero for the default of each.
	limit int
	// lateKubelets freezes what plays the kubelets until all pods are marked. A
	// kubelet has containers to stop, so that its own requests come seconds later;
	// kwok makes them at once, and takes from the two that are compared, unequally.
	lateKubelets bool
	// marks is true if the marks of EvictionPolicies are compared.
	marks bool
	// timed pods tolerate the taint, each for a while.
	timed bool
	// order is who evicts, in a round. What drifts while it runs (the data of etcd
	// grow) falls on both alike if the one that goes first also goes last.
	order []evictor
}

// sameLimit leaves the speed to what the evictor and the API server can do.
const sameLimit = 1000

func (o *options) scenarios() []scenario {
	there := []evictor{tollgate, builtin}
	thereAndBack := []evictor{tollgate, builtin, builtin, tollgate}
	limits := fmt.Sprintf("client limits qps %d and burst %d for both", sameLimit, sameLimit)
	const onDevices = "%d pods, each with a device, on one rule; "
	all := []scenario{
		{
			title: fmt.Sprintf("%d pods on %d nodes, %s", o.pods, o.nodes, limits),
			pods:  o.pods, limit: sameLimit, order: thereAndBack,
		},
		{
			title: fmt.Sprintf("%d pods on %d nodes, %s; kubelets answer late", o.pods, o.nodes, limits),
			pods:  o.pods, limit: sameLimit, order: thereAndBack, lateKubelets: true,
		},
		{
			title: fmt.Sprintf("%d pods on %d nodes, each at its default client limits", o.defaultPods, o.nodes),
			pods:  o.defaultPods, order: thereAndBack,
		},
		{
			title: fmt.Sprintf(onDevices+limits, o.devicePods),
			pods:  o.devicePods, devices: true, limit: sameLimit,
			order: []evictor{loop32, tollgate, builtin, builtin, tollgate, loop64},
		},
		{
			title: fmt.Sprintf(onDevices+limits, o.manyDevicePods),
			pods:  o.manyDevicePods, devices: true, limit: sameLimit, order: there,
		},
		{
			title: fmt.Sprintf(onDevices+"each at its default client limits", o.defaultDevicePods),
			pods:  o.defaultDevicePods, devices: true, order: thereAndBack,
		},
		{
			title: fmt.Sprintf(onDevices+"%d due each second", o.timedPods, duePerSecond),
			pods:  o.timedPods, devices: true, limit: sameLimit, order: there, timed: true,
		},
	}
	all = append(all, scenario{
		title: fmt.Sprintf("%d pods on %d nodes by how they are marked, %s; kubelets answer late", o.markedPods, o.nodes, limits),
		pods:  o.markedPods, limit: sameLimit, lateKubelets: true, marks: true,
		order: []evictor{
			loop64, evictions64, deletions64, tollgate, byEvictionAPI, whileTerminating, builtin,
			builtin, whileTerminating, byEvictionAPI, tollgate, deletions64, evictions64, loop64,
		},
	})
	return slices.DeleteFunc(all, func(s scenario) bool { return s.pods == 0 })
}

const (
	// duePerSecond is how many timed pods become due in a second, all at once: a
	// time in the API has whole seconds.
	duePerSecond = 100
	// firstDue is when the first of them do, after the taint: by then the evictor
	// has seen all of them.
	firstDue = 5
)

// tolerates is for how many seconds a timed pod tolerates the taint.
func tolerates(i int) int64 { return int64(firstDue + i/duePerSecond) }

// longest is how long a run may take: the built-in evictor does about seven pods
// in a second at its default limits.
func (s scenario) longest() time.Duration {
	return startTimeout + time.Duration(s.pods)*podTimeout
}

const (
	// startTimeout is how long a step before the measurement may take.
	startTimeout = 3 * time.Minute
	// podTimeout is how long the creation or the eviction of one pod may take.
	podTimeout = time.Second
)
