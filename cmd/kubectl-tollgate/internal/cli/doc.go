// Package cli has the shared parts of the commands: they connect as kubectl does, read the
// cluster as the user in chunks, report progress and errors, and write tables.
//
// Lines of a table have at most Width characters, unless it is wide, and no trailing blanks.
// Cells are passed through Clean.
package cli
