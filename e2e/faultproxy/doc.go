// Package faultproxy stands between a client and the API server, and does what networks and busy servers do.
//
// Requests are delayed, lost before or after they are carried out, or answered with
// an error; watches stay open and say nothing; answers break off, and the clock by
// which they are dated is another one. Each write is recorded with what became of
// it, whatever the client was told.
//
// A client is given a proxy of its own, so that one of two replicas can be cut off
// while the other is not.
package faultproxy
