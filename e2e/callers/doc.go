// Package callers tests, on a real API server that is told to show a client certificate to
// its webhooks, that a Tollgate which demands it admits what the API server sends, and
// nothing that others do. It mints the tokens of KEP-6060 with the real TokenRequest API.
package callers
