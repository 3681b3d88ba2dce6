// Package wording puts what users have written into sentences for other users: on
// one line, of bounded length, and without characters that could make a terminal or
// a log show something else.
package wording
