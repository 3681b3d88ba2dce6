// Package certs gives the webhook server its certificate, and the API server
// the CA bundle to trust it by.
//
// There are two sources. Without a directory, Tollgate is its own CA: one
// Secret, shared by all replicas, holds the CA, its key and the serving
// certificate, and the bundle is kept in the named webhook configurations. With
// a directory, certificate and key are read from mounted files that someone
// else renews, and the configurations are left to that someone (cert-manager
// and its cainjector). They are read at the start, when a replica is not ready
// before they verify its certificate, and when a certificate of another issuer
// comes: it waits until they verify it, if they verify the one in use, since who
// writes the files and who injects the CA know nothing of each other (F04).
//
// # How the Secret changes
//
// Every replica runs the same loop, none is the leader. A pass reads the
// configurations and the Secret from the API server, writes the bundle where it
// is missing, asks the pure planner for the next step, and writes the Secret on
// condition of its resourceVersion. Who loses a race reads again. Watches only
// wake the loop.
//
// A serving certificate is replaced at two thirds of its life. A CA, likewise,
// is replaced in three steps, so that the API server never meets a certificate
// that it cannot verify (F04):
//
//  1. A next CA is added to the bundle. The old one keeps signing.
//  2. The moment is noted in the Secret at which all existing configurations
//     were first seen with both.
//  3. Options.BundleDelay later, if the configurations still hold both, the next
//     CA signs a serving certificate and becomes the CA. The old one stays in
//     the bundle until it expires, for replicas that are cut off.
//
// CAs that come without a roll-over, with a Secret from a backup or one made
// anew, are met in the same spirit. The bundle takes up every CA of ours that
// the configurations hold before it replaces theirs, and none is dropped before
// it expires. A replica with a pair that works takes one of another CA into use
// only BundleDelay after it saw that CA in the configurations. It waits for
// nothing if it has no pair that works.
//
// What cannot be used (half written, mismatched, oversized, not ours) never
// replaces a pair that works. The Secret is rewritten only if it carries
// Tollgate's label, and what got lost in it is restored from what a replica
// remembers. A Secret that is deleted while no replica remembers it starts a new
// CA at once. To ask for a new CA without a gap, set the annotation
// tollgate.dev/roll-over on the Secret.
//
// Certificates are judged by the clock of the replica. Clocks may differ by five
// minutes, or a tenth of a certificate's life if that is less.
//
// # What is reused
//
// Keys and signatures are crypto/x509, PEM is client-go's util/cert and util/keyutil.
// cert-manager's pkg/util/pki is not used, because it brings an LDAP client into the
// program. Its pkg/server/tls with the authority below it is not used: a new CA signs there
// at once, with no overlap, each replica has a leaf of its own, a broken Secret
// is replaced whoever owns it, and the clock is the machine's. Nor is
// controller-runtime's certwatcher used for the files: it has no size limit,
// takes expired certificates, and counts its errors in a registry of its own.
//
// # What guards the state
//
// The pair in use and the reason for not being ready are atomic pointers,
// written by the loop and read by handshakes and probes. All other state
// belongs to the one goroutine that runs Manager.Start and needs no lock. The
// state shared by replicas is guarded by the resourceVersion of the Secret and
// of each configuration.
package certs
