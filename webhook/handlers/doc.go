// Package handlers decides about the requests of admission reviews: one file a resource, with a
// Handler that returns a Result. It reads the fields that it needs of a request, asks the
// packages below policy/, and knows nothing of HTTP: package webhook receives the reviews,
// counts them, and writes the answers.
//
// A denial is a Result with its findings. An error means that no decision could be made: a
// review.BadError says that no API server would send the request, an UndecidedError that the
// request itself is the cause.
//
// Verdicts depend on the request, the policies in force, and what readers and trackers say. What
// handlers keep beside these bounds the rates of reads, joins reads, and counts a write which
// has been allowed against the limits of the next; a dry run leaves nothing behind. Every
// handler is safe for concurrent use.
package handlers
