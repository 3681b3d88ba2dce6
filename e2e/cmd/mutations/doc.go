// Command mutations plays a list of faults in the code that makes decisions, and requires that a test fails for each, which is what "make mutations" is.
//
// A fault is a text of a source file and what stands there instead: a condition that is
// inverted, a check that is gone, a boundary that is off by one. Nothing is written to the
// source tree: the go command takes the changed file by its flag -overlay. First the tests
// are run without any fault, because a test that fails anyway shows nothing.
package main
