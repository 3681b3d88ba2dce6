// Package cli is what the commands share: they find the cluster as kubectl does, read it as
// the user, a chunk at a time, report progress and errors, and write tables.
//
// A table has lines of at most Width characters unless the user asks for more, no blanks at
// the ends of lines, and cells as Clean returns them.
package cli
