// Package policy holds what every decision of Tollgate has in common: a verdict and the
// findings that explain it, the subjects that policies name, and short forms of texts of
// users for messages. The decisions themselves are in the packages below it, each a pure
// function of values and, where time matters, of now. ARCHITECTURE.md lists them.
//
// Nothing in here talks to a cluster, reads a clock, logs or counts. A denial is
// a value, never an error: an error says that no decision could be made, and
// what happens then is for the caller to choose.
//
// Subjects are users, groups and service accounts as RBAC writes them, or all to whom RBAC
// allows a verb on a taint key. Names are compared as a whole: the user
// system:node:evil is that user and no node.
//
// Texts of users that become part of a message for other users are put on one line, of
// bounded length, without characters that could make a terminal or a log show something
// else.
package policy
