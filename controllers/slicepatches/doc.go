// Package slicepatches carries out what ResourceSlicePatches say beyond the schedulers that
// apply them (KEP-5027), and says in their status what has become of them.
//
// Problem: a scheduler that knows nothing of patches does not see the taints that they
// give to devices, and nobody but who applies them knows which devices a patch is for.
//
// Decision: each taint of a patch is written out as DeviceTaintRules, which every
// scheduler and every evictor reads: one rule for each device that the patch selects, or
// a single one if it selects whole drivers or pools, by names alone. The rules have the
// label v1alpha1.LabelPatch and are owned by the patch. Their names follow from the
// patch, the device and the taint, so that a rule that was edited or deleted is put
// right. Where Kubernetes' own evictor runs too, NoExecute is written as NoSchedule, with
// the true effect in an annotation, so that the pods are left to Tollgate.
//
// A taint without a time counts since it was first seen here. That is recorded in the
// status before a rule has it, and kept while the patch has a taint of that key and
// effect, whatever its value.
//
// Edge cases: rules of a patch that is gone are deleted here too, because the garbage
// collector may not be among those whom a TaintPolicy lets remove the taint. A rule of
// somebody else that has the name is left alone, and no more than a thousand rules are
// written for a patch, five thousand for all; the condition Ready says so.
//
// Where the feature gate is off, Remover deletes the DeviceTaintRules that Tollgate wrote
// for it and says so in the status of the patches, so that off is as if the patches did
// not exist.
package slicepatches
