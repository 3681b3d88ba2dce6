// Package checking judges objects from files as the webhook of a Tollgate would judge their
// creation, without a cluster.
//
// It has the webhook's own endpoints answer, in this process, so there is one judgement and
// not two that have to agree. What is written here is what lies around them: what the API
// server has done to an object by the time that it asks (package builtin), which objects it
// asks about at all, and what is read in the course of a review, which here is what stands in
// the files.
//
// What Kubernetes itself thinks of an object is not judged: one without containers passes.
package checking
