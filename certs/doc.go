// Package certs provides the certificate of the webhook server, and the CA bundle by which
// the API server verifies it.
//
// There are two sources. Without a directory, Tollgate is its own CA: one Secret, shared
// by all replicas, holds the CA, its key and the serving certificate, and Tollgate writes
// the bundle into the named webhook configurations. With a directory, certificate and key
// are read from mounted files that another program renews, and the configurations are left
// to that program (cert-manager and its cainjector). Tollgate only reads them: at the
// start, when a replica is not ready before they verify its certificate, and when the
// files have a certificate of another issuer. That certificate waits until the
// configurations verify it, if they verify the current one, since the program that writes
// the files and the one that injects the CA are not synchronized (F04).
//
// # How the Secret changes
//
// Every replica runs the same loop; there is no leader. A pass reads the configurations
// and the Secret from the API server, writes the bundle where it is missing, asks the pure
// planner for the next step, and writes the Secret with its resourceVersion. After a
// conflict it reads again. Watches only wake the loop.
//
// A serving certificate is replaced after two thirds of its lifetime. So is a CA, in three
// steps, so that the API server never receives a certificate that it cannot verify (F04):
//
//  1. A next CA is added to the bundle. The old one keeps signing.
//  2. The Secret records the time at which all existing configurations
//     first held both.
//  3. Options.BundleDelay later, if the configurations still hold both, the next
//     CA signs a serving certificate and becomes the CA. The old one stays in
//     the bundle until it expires, for replicas that are cut off.
//
// CAs can also change without a roll-over, with a Secret from a backup or a new one.
// Before the bundle replaces that of the configurations, it gets every CA of Tollgate that
// they hold, and none is dropped before it expires. A replica with a working pair uses one
// of another CA only BundleDelay after it saw that CA in the configurations. A replica
// without a working pair does not wait.
//
// Unusable data (incomplete, mismatched, oversized, of another owner) never replaces a
// working pair. The Secret is rewritten only if it has Tollgate's label, and lost data is
// restored from the memory of a replica. If a Secret is deleted and no replica remembers
// it, a new CA is created at once. To request a new CA without an interruption, set the
// annotation tollgate.dev/roll-over on the Secret.
//
// The clock of the replica decides whether certificates are valid. Clocks may differ by
// five minutes, or a tenth of a certificate's lifetime if that is less.
//
// # What is reused
//
// Keys and signatures are crypto/x509, PEM is client-go's util/cert and util/keyutil.
// cert-manager's pkg/util/pki is not used, because it brings an LDAP client into the
// program. Its pkg/server/tls with the authority below it is not used: a new CA signs there
// at once, with no overlap, each replica has a leaf of its own, a broken Secret
// is replaced even if it has another owner, and the clock is the machine's. Nor is
// controller-runtime's certwatcher used for the files: it has no size limit,
// takes expired certificates, and counts its errors in a registry of its own.
//
// # What guards the state
//
// The pair in use, whether it is trusted, and the last error are atomic values,
// written by the loop and read by handshakes and probes. All other state
// belongs to the one goroutine that runs Manager.Start and needs no lock. The
// state shared by replicas is guarded by the resourceVersion of the Secret and
// of each configuration.
package certs
