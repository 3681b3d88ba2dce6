package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// Certificates say which client certificates are accepted: those of an authority in the
// file, with one of the names or organizations.
type Certificates struct {
	// CAFile holds the authorities, as PEM. It is read again when it changes.
	CAFile string
	// CommonNames and Organizations are compared whole, with the subject of the
	// certificate. One of them is enough.
	CommonNames, Organizations []string
}

// maxIntermediates is more than any API server presents. A chain costs a signature for each.
const maxIntermediates = 4

var errOtherName = errors.New("neither the common name nor an organization of the client certificate is accepted")

// certificates verifies client certificates.
type certificates struct {
	CallerOptions

	authorities atomic.Pointer[authorities]
	verified    verified[*authorities]
}

func newCertificates(o CallerOptions) (*certificates, error) {
	c := &certificates{CallerOptions: o}
	read, err := readAuthorities(o.Certificates.CAFile)
	if err != nil {
		return nil, err
	}
	c.authorities.Store(read)
	return c, nil
}

// identify returns the grant of the chain that a client presents. That the client has the key
// was shown in the handshake.
func (c *certificates) identify(chain []*x509.Certificate) (grant, error) {
	by, now, shown := c.authorities.Load(), c.ServerClock.Now(), digest(sha256.Sum256(chain[0].Raw))
	if found, ok := c.verified.get(shown, by, now); ok {
		return found, nil
	}
	until, err := verifyChain(chain, by, c.Certificates, now)
	if err != nil {
		return grant{}, err
	}
	found := grant{until: until, groups: []string{everyGroup}}
	c.verified.put(shown, by, found)
	return found, nil
}

// verifyChain returns until when a chain is good. It is pure.
func verifyChain(chain []*x509.Certificate, by *authorities, accepted *Certificates, now time.Time) (time.Time, error) {
	if len(chain) > maxIntermediates+1 {
		return time.Time{}, fmt.Errorf("the client presents %d certificates, more than %d", len(chain), maxIntermediates+1)
	}
	intermediates := x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	found, err := chain[0].Verify(x509.VerifyOptions{
		Roots:         by.roots,
		Intermediates: intermediates,
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return time.Time{}, fmt.Errorf("verify the client certificate: %w", err)
	}
	subject := chain[0].Subject
	if !slices.Contains(accepted.CommonNames, subject.CommonName) &&
		!slices.ContainsFunc(subject.Organization, func(o string) bool { return slices.Contains(accepted.Organizations, o) }) {
		return time.Time{}, errOtherName
	}
	first := slices.MinFunc(found[0], func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	return first.NotAfter, nil
}

// lookEvery is how often the file of authorities is looked at. An administrator who replaces an
// authority lists both for longer than that.
const lookEvery = 10 * time.Second

// follow uses the authorities in the file when it changes, and keeps the known ones while the
// file cannot be used.
func (c *certificates) follow(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	ticker := c.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	broken := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		read, err := readAuthorities(c.Certificates.CAFile)
		switch {
		case err != nil:
			c.Metrics.read(trustAuthorities, err)
			if !broken {
				log.Error(err, "read the authorities of client certificates again, those known stay in use", "file", c.Certificates.CAFile)
			}
		case read.digest != c.authorities.Load().digest:
			c.Metrics.read(trustAuthorities, nil)
			c.authorities.Store(read)
			log.Info("authorities of client certificates in use", "file", c.Certificates.CAFile, "authorities", read.count)
		}
		broken = err != nil
	}
}

// maxAuthorities bounds the file of authorities in bytes: large PEM is slow to parse.
const maxAuthorities = 256 << 10

// authorities sign the client certificates that are accepted.
type authorities struct {
	roots  *x509.CertPool
	count  int
	digest digest
}

func readAuthorities(path string) (*authorities, error) {
	file, err := os.Open(path) //nolint:gosec // The operator names the file.
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	// No more than shows that the file is too large.
	content, err := io.ReadAll(io.LimitReader(file, maxAuthorities+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	parsed, err := parseAuthorities(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return parsed, nil
}

// parseAuthorities returns the authorities in PEM. One that is broken is an error, so that
// half a file is not taken for a whole one.
func parseAuthorities(content []byte) (*authorities, error) {
	if len(content) > maxAuthorities {
		return nil, fmt.Errorf("the file is larger than %d KiB", maxAuthorities>>10)
	}
	parsed := &authorities{roots: x509.NewCertPool(), digest: sha256.Sum256(content)}
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("the file holds a %.64q, and should hold certificates only", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate %d: %w", parsed.count+1, err)
		}
		parsed.roots.AddCert(certificate)
		parsed.count++
	}
	switch begun := bytes.Count(content, []byte("-----BEGIN ")); {
	case begun == 0:
		return nil, errors.New("the file holds no certificate")
	case begun != parsed.count: // The decoder passes over broken blocks.
		return nil, fmt.Errorf("%d certificates begin in the file, and %d are whole", begun, parsed.count)
	}
	return parsed, nil
}
