// Package evictionfeed brings what evictions are told from: once, by lists, or for as long
// as somebody looks, by watches.
package evictionfeed
