// Package validationtest draws pods and updates of their scheduling directives, so
// that the decisions of package validation can be compared with those of an API
// server. The same source of randomness gives the same pods.
//
// The random pods are aimed at the rules: an update is one to three changes, each of
// which has a rule in mind, and about as many updates are allowed as refused.
package validationtest
