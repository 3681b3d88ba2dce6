// Package policies keeps the policies that admission judges by.
//
// Store watches the policies of every kind and puts them into force together, as one
// immutable value; a review takes the value of the moment it arrives, so none sees
// half of a change, and only the kind that changed is compiled again.
//
// The policies in force stay when the API server cannot name the stored ones. That includes
// the deletion of a CustomResourceDefinition: Kubernetes then deletes the policies of
// that kind one by one, which looks like their deletion by an administrator. The
// difference is in the discovery of the API server: of a definition that is on its way out
// nothing can be created any more. So before fewer policies are put into force than
// there were, the API server is asked whether one more could be created. If not, those
// that are lost stay in force, a metric and the log say so, and once their kind is
// served again the stored policies count, be there none. Policies that are new or
// changed are in force at once, whatever is lost beside them. A replica that starts
// meanwhile is not ready, and reviews fail.
//
// A watch may be open and bring nothing. So twice a minute all policies are read from the
// API server, and when the watch lacks one at two looks in a row, the stored ones are
// put into force without it, with the same care for lost ones: a policy that pauses
// evictions counts after a minute at the latest.
package policies
