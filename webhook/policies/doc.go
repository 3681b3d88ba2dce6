// Package policies keeps the policies that admission judges by.
//
// Store watches the policies of every kind and puts them into force together, as one
// immutable value; a review takes the value of the moment it arrives, so none sees
// half of a change, and only the kind that changed is compiled again.
//
// What is in force stays when the API server cannot say what should be. That includes
// the deletion of a CustomResourceDefinition: Kubernetes then deletes the policies of
// that kind one by one, which looks like an administrator who deletes them. The
// difference is in what the API server offers: of a definition that is on its way out
// nothing can be created any more. So before fewer policies are put into force than
// there were, the API server is asked whether one more could be created. If not, those
// that are lost stay in force, a metric and the log say so, and once their kind is
// served again what is stored then counts, be it nothing. Policies that are new or
// changed are in force at once, whatever is lost beside them. A replica that starts
// meanwhile is not ready, and reviews fail.
//
// A watch may be open and bring nothing. So twice a minute all policies are read from the
// API server, and when the watch lacks something at two looks in a row, what is stored is
// put into force without it, with the same care for what is lost: a policy that pauses
// evictions counts after a minute at the latest.
package policies
