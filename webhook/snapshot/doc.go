// Package snapshot keeps the policies that admission judges by, and says of each
// whether it is in force.
//
// Store watches the policies and compiles them into one immutable set at a time;
// a review takes the set of the moment it arrives, so none sees half of a
// change. Status writes the condition Ready, on the leader only.
package snapshot
