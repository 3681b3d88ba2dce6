// Package approvals keeps the status of EvictionApprovals: whether one can be used, was
// used, or is too old, and how many pods have gone because of it.
//
// An approval is used when the taint that it names comes to the object that it names
// while the approval lasts: by its time or, since a time can be written to be in the
// past or the future, by when a replica saw it come or reach further. It is used as well
// when a breaker first lets pods go because of it: package breaker writes that, together
// with how many. It then is for the taint that stands, and for none that comes later. An
// approval for an EvictionPolicy is used by breakers alone, and can be used until they have
// let as many pods go as it says.
//
// Nothing is deleted here: the approval stays as a record.
package approvals
