// Package pages follows the pages that a new reader of Tollgate types from, on a real control
// plane.
//
// A page is run from top to bottom, on a control plane of its own:
//
//   - a block of language sh is one script of bash, which has to succeed;
//   - a block of language console has commands after "$ " and what they print. Their output
//     has to be the same, but for what differs from run to run: see expectation. A line "..."
//     stands for any lines;
//   - a block of language yaml is written to the file that its first line names ("# FILE"), or
//     applied if it names none;
//   - a command in the text, between backquotes, has to succeed.
//
// A command that cannot be run here is on the list elsewhere, with the reason. An entry of
// the list that no page has any more fails the test, as does a block of another language.
//
// What a page says that its reader has (a node, a Deployment, a file) is made by the test of
// the page before its commands are run.
//
// Each page has a control plane of its own, because its output names all that is in the cluster.
package pages
