// Package callers tells reviews that an API server sends from those that anybody else who
// reaches the port does.
//
// A caller shows who it is in one of two ways. A client certificate of an authority that the
// configuration names, with a name that it names too, is what an API server presents that
// was given one for its webhooks. A token that an API server issued to be shown to this very
// webhook (KEP-6060) is bound to one webhook configuration, and says of which API groups it
// may send reviews. Both are verified here alone: the API server is asked for nothing but
// its public keys.
//
// Who fails is told nothing: neither why, nor what was wrong with the review.
package callers
