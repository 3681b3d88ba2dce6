// Package state reads of a cluster, once and as the user, what evictions depend on, into
// what the server decides by: a tracker, the rules of the evictor, and the policies in
// force.
//
// What the user may not see, or what is not served, is as if it was not there, and Missing
// says what an answer lacks because of that. Without pods and nodes there is no answer.
package state
