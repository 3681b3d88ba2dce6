// Package slicepatches applies ResourceSlicePatches for components other than the
// schedulers that apply them (KEP-5027), and writes their status.
//
// Problem: a scheduler without support for patches does not see the taints that they add
// to devices, and only a scheduler with support knows which devices a patch selects.
//
// Decision: the controller writes each taint of a patch as DeviceTaintRules, which every
// scheduler and evictor reads: one rule for each selected device, or a single one if the
// patch selects whole drivers or pools, by names alone. The rules have the label
// v1alpha1.LabelPatch and are owned by the patch. Their names derive from the patch, the
// device and the taint, so that an edited or deleted rule is restored. Where Kubernetes'
// own evictor runs too, NoExecute is written as NoSchedule, with the true effect in an
// annotation, so that only Tollgate evicts the pods.
//
// A taint without timeAdded counts from when the controller first sees it. The status
// records that time before a rule has it, and keeps it while the patch has a taint of that
// key and effect, whatever its value.
//
// Edge cases: the controller also deletes the rules of a deleted patch, because a
// TaintPolicy may forbid the garbage collector to remove the taint. A rule of another
// writer that has the name stays. At most 1,000 rules are written for a patch and 5,000
// for all; the condition Ready reports it.
//
// Where the feature gate is off, Remover deletes the DeviceTaintRules of patches and sets
// their condition Ready to False.
package slicepatches
