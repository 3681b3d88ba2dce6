package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxAuthorities bounds the file of authorities in bytes: large PEM is slow to parse.
const maxAuthorities = 256 << 10

// authorities are those whose client certificates are accepted.
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
	read, err := parseAuthorities(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return read, nil
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
	case begun != parsed.count: // What is broken is passed over by the decoder.
		return nil, fmt.Errorf("%d certificates begin in the file, and %d are whole", begun, parsed.count)
	}
	return parsed, nil
}
