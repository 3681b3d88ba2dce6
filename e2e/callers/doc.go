// Package callers tests, on a real API server that is told to show a client certificate to
// its webhooks, that a Tollgate which demands it admits what the API server sends, and
// nothing that others do. It mints the tokens of KEP-6060 with the real TokenRequest API. It also
// tests that the traces of that API server go on in Tollgate, and those of evictions in that API server.
//
// Its control plane is its own: the API server shows its webhooks a client certificate, which
// Tollgate demands, and traces all requests.
package callers
