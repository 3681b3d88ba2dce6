package certs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// readAttempts is how often a pair is read before it counts as invalid. The kubelet swaps
// a directory, so the first read can return a certificate and the key of the next one; the
// second read then returns the next pair.
const readAttempts = 2

// files is the source that reads a pair which another program renews.
type files struct {
	directory string
	reporter  *reporter
	metrics   *Metrics
	use       *inUse
	guard     *guard
	// verified is true after a webhook verified the pair in use once.
	verified atomic.Bool
}

func newFiles(o *Options, use *inUse, r *reporter) *files {
	g := &guard{targets: &publisher{reporter: r}, reporter: r, recheck: o.Recheck}
	if o.Client != nil {
		g.targets = newPublisher(o.Client, o, nil, r)
	}
	return &files{directory: o.Directory, reporter: r, metrics: o.Metrics, use: use, guard: g}
}

// watch does nothing: certificates are renewed with a third of their lifetime left, and
// the kubelet takes a minute to update files.
func (f *files) watch(context.Context, func()) (func(), error) {
	return func() {}, nil
}

// ready returns an error until a webhook has verified the pair, so that a rollout does not
// replace a replica with a verified certificate. It never fails after that: other replicas
// have the same files.
func (f *files) ready() error {
	if !f.verified.Load() {
		return errUnverified
	}
	return nil
}

// refresh uses the files if they hold a working pair (F02), and the API server verifies it
// or does not verify the current one (F04).
func (f *files) refresh(ctx context.Context, now time.Time) (time.Time, error) {
	var p *pair
	var why reason
	var err error
	for range readAttempts {
		if p, why, err = f.load(now); err == nil {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("load certificate: %w", err)
		f.reporter.report(ctx, why, f.directory, err)
		return time.Time{}, err
	}
	f.reporter.well(ctx, f.directory, reasonFilesRead, reasonFilesInvalid)
	if until, err := f.guard.until(ctx, f.use.load(), p, now); err != nil || !until.IsZero() {
		return until, err
	}
	if f.use.adopt(ctx, p) {
		f.metrics.renewed(kindServing)
	}
	if !f.verified.Load() {
		if err := f.guard.verify(ctx, p, now); err != nil {
			return time.Time{}, err
		}
		f.verified.Store(true)
	}
	f.reporter.well(ctx, "", reasonFilesUntrusted)
	return p.leaf.NotAfter, nil
}

func (f *files) load(now time.Time) (*pair, reason, error) {
	directory := os.DirFS(f.directory)
	certPEM, err := readCapped(directory, corev1.TLSCertKey)
	if err != nil {
		return nil, reasonFilesRead, err
	}
	keyPEM, err := readCapped(directory, corev1.TLSPrivateKeyKey)
	if err != nil {
		return nil, reasonFilesRead, err
	}
	p, err := parsePair(certPEM, keyPEM)
	if err != nil {
		return nil, reasonFilesInvalid, err
	}
	if !p.usable(now) {
		return nil, reasonFilesInvalid, errors.New("certificate has expired")
	}
	return p, "", nil
}

// readCapped reads at most one byte more than maxPEM.
func readCapped(directory fs.FS, name string) ([]byte, error) {
	file, err := directory.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxPEM+1))
}
