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

// readAttempts is how often a pair is read before it counts as broken. The
// kubelet swaps a directory, so that one certificate may be followed by the key
// of the next; the second reading then gets both of the next.
const readAttempts = 2

// files is the source that reads what others renew.
type files struct {
	directory string
	reporter  *reporter
	metrics   *Metrics
	use       *inUse
	guard     *guard
	// verified is whether what is in use was ever found to be verified by a webhook.
	verified atomic.Bool
}

func newFiles(o *Options, use *inUse, r *reporter) *files {
	g := &guard{targets: &publisher{reporter: r}, reporter: r, recheck: o.Recheck}
	if o.Client != nil {
		g.targets = newPublisher(o.Client, o, nil, r)
	}
	return &files{directory: o.Directory, reporter: r, metrics: o.Metrics, use: use, guard: g}
}

// watch does nothing: renewed certificates come a third of their life early, and
// the kubelet itself takes a minute to bring them.
func (f *files) watch(context.Context, func()) (func(), error) {
	return func() {}, nil
}

// ready keeps a replica that starts from taking the place of one whose certificate is
// verified. Once it is ready it stays so: other replicas would fare no better.
func (f *files) ready() error {
	if !f.verified.Load() {
		return errUnverified
	}
	return nil
}

// refresh takes the files into use if they hold a pair that works (F02), and that
// the API server verifies if it verifies the one in use (F04).
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

// readCapped reads no more than shows that a file is too large.
func readCapped(directory fs.FS, name string) ([]byte, error) {
	file, err := directory.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(io.LimitReader(file, maxPEM+1))
}
