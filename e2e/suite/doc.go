// Package suite gives the tests of a package one control plane to share.
//
// Starting it takes seconds, so a test binary starts one, in TestMain, and each
// test works in a namespace of its own. A control plane that does not start
// fails the tests; nothing is skipped.
package suite
