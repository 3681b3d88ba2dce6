// Package gate decides who may open a scheduling gate, and who may tighten the
// scheduling directives of a pod that waits behind one (KEP-3838).
package gate
