// Package spread holds what policy/spread computes against the plugin PodTopologySpread of
// kube-scheduler itself, on random clusters.
package spread
