// Package check holds the test that kubectl tollgate check, offline, says of an object what the API
// server says with Tollgate in it: random objects under many sets of policies, each created on
// a real control plane by a dry run, and judged by the program from files.
//
// Its control plane is its own: random policies are in force for the whole cluster.
package check
