// Package decide says when a pod has to leave, because of NoExecute taints of its node and of
// the devices that it uses, and which EvictionPolicy governs that. It takes values and the time
// and returns a deadline and the reasons. The evictor, the previews and the commands that explain
// evictions make the same decision with it.
package decide
