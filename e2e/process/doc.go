// Package process starts programs, finds them again, and ends them: surely, and only them.
//
// A process is known by its id together with the time it started, because ids
// are used again. A process can be a child, which the kernel ends with its
// parent even when the parent is killed (on Linux), or detached, which outlives
// its parent and can be attached to from its recorded identity.
//
// All methods of Process are safe for concurrent use.
package process
