// Package discovery finds out which resources the API server serves, and in which
// version, and keeps watches of those that it does. That differs between versions
// of Kubernetes, depends on feature gates and flags of the API server (VS-01,
// VS-02), and changes when a control plane is upgraded or configured anew.
//
// What is not served is said once in the log and costs nothing but what it is
// for. So does what is not permitted, and what the API server does not say anything
// about while it answers other questions (F10).
//
// What is watched in another version from now on is not forgotten in between: only
// what the new list lacks is.
package discovery
