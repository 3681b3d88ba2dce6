// Package decide decides when a pod has to leave because of NoExecute taints of its node and of the
// devices that it uses, and which EvictionPolicy governs the eviction. Its functions are pure. The
// evictor, the previews and the commands that explain evictions all use them.
package decide
