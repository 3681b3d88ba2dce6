// Command certmanager is cert-manager, for the tests: its controllers for certificates, and its cainjector.
//
// cert-manager's own programs are modules of their own that are not published, so this
// one starts the same controllers from the module that is. Two things are left out: the
// issuers that need a world outside, such as ACME, and cert-manager's own webhook, which
// only refuses objects that are wrong.
package main
