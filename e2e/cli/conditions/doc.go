// Package conditions runs every command as a user does on clusters where it has little to
// say: empty ones, ones without Tollgate, and ones of which the user may see nothing, or one
// namespace. Each answers in time with a code and in words, and writes nothing. Then it runs
// them where there are many pods.
//
// Its control plane is its own: it has no nodes and no Tollgate at first, and the API server
// logs all that a user asks for.
package conditions
