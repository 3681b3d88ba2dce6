// Package callers tests, on a real API server that is told to show a client certificate to
// its webhooks, that a Tollgate which demands it admits what the API server sends, and
// nothing that others do. It mints the tokens of KEP-6060 with the real TokenRequest API.
//
// Its control plane is its own: the API server shows its webhooks a client certificate, and
// Tollgate demands it.
package callers
