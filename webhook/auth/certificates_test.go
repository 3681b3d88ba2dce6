package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func acceptingCertificates(tb testing.TB, required bool, file string) *Callers {
	tb.Helper()
	o := optionsOf(required)
	o.Certificates = &Certificates{CAFile: file, CommonNames: []string{"kube-apiserver"}, Organizations: []string{"webhook-callers"}}
	c, err := NewCallers(o)
	require.NoError(tb, err)
	return c
}

func TestF08WhichClientCertificatesAreAccepted(t *testing.T) {
	right, wrong := newCA(t, "right"), newCA(t, "right")
	kubeAPIServer := pkix.Name{CommonName: "kube-apiserver"}
	tests := map[string]struct {
		by   ca
		name pkix.Name
		edit func(*x509.Certificate)
		want string
	}{
		"the name that is accepted":        {right, kubeAPIServer, nil, ""},
		"an organization that is accepted": {right, pkix.Name{CommonName: "x", Organization: []string{"y", "webhook-callers"}}, nil, ""},
		"for servers and clients": {right, kubeAPIServer, func(c *x509.Certificate) {
			c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		}, ""},
		"another authority of the same name":     {wrong, kubeAPIServer, nil, "unknown authority"},
		"another name":                           {right, pkix.Name{CommonName: "system:node:n-1", Organization: []string{"system:nodes"}}, nil, errOtherName.Error()},
		"no name":                                {right, pkix.Name{}, nil, errOtherName.Error()},
		"a name that begins like it":             {right, pkix.Name{CommonName: "kube-apiserver-2"}, nil, errOtherName.Error()},
		"a name in another case":                 {right, pkix.Name{CommonName: "Kube-APIServer"}, nil, errOtherName.Error()},
		"the name as an organization":            {right, pkix.Name{Organization: []string{"kube-apiserver"}}, nil, errOtherName.Error()},
		"the organization as a name":             {right, pkix.Name{CommonName: "webhook-callers"}, nil, errOtherName.Error()},
		"the name as that of a host":             {right, pkix.Name{}, func(c *x509.Certificate) { c.DNSNames = []string{"kube-apiserver"} }, errOtherName.Error()},
		"it has expired":                         {right, kubeAPIServer, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }, "expired"},
		"it is not valid yet":                    {right, kubeAPIServer, func(c *x509.Certificate) { c.NotBefore = now.Add(time.Minute) }, "not yet valid"},
		"a certificate for servers":              {right, kubeAPIServer, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }, "key usage"},
		"a certificate signed by itself":         {selfSigned(t), kubeAPIServer, nil, "unknown authority"},
		"a name of everything, as in a wildcard": {right, pkix.Name{CommonName: "*"}, nil, errOtherName.Error()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			known := acceptingCertificates(t, true, writeFile(t, right.pem()))
			certificate, _ := tt.by.issue(t, tt.name, tt.edit)
			for range 2 { // the second from what was remembered, if it is
				found, err := known.certificates.identify([]*x509.Certificate{certificate})
				if tt.want != "" {
					require.ErrorContains(t, err, tt.want)
					require.Empty(t, known.certificates.verified.entries)
					continue
				}
				require.NoError(t, err)
				require.True(t, found.covers(""))
				require.Equal(t, now.Add(time.Hour), found.until)
			}
		})
	}
}

// selfSigned is an authority that nobody named.
func selfSigned(t *testing.T) ca {
	t.Helper()
	return newCA(t, "kube-apiserver")
}

func TestF08AChainIsFollowedAndNoFurtherThanAnyAPIServerNeeds(t *testing.T) {
	root := newCA(t, "root")
	intermediate := func(by ca, until time.Time) ca {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := *by.certificate
		template.Subject = pkix.Name{CommonName: by.certificate.Subject.CommonName + "-below"}
		template.NotAfter = until
		raw, err := x509.CreateCertificate(rand.Reader, &template, by.certificate, key.Public(), by.key)
		require.NoError(t, err)
		certificate, err := x509.ParseCertificate(raw)
		require.NoError(t, err)
		return ca{certificate, key}
	}
	known := acceptingCertificates(t, true, writeFile(t, root.pem()))
	below := intermediate(root, now.Add(time.Minute))
	leaf, _ := below.issue(t, pkix.Name{CommonName: "kube-apiserver"}, nil)
	_, err := known.certificates.identify([]*x509.Certificate{leaf})
	require.ErrorContains(t, err, "unknown authority")
	found, err := known.certificates.identify([]*x509.Certificate{leaf, below.certificate})
	require.NoError(t, err)
	require.Equal(t, now.Add(time.Minute), found.until, "the first that expires ends it")

	chain := []*x509.Certificate{}
	by := root
	for range maxIntermediates + 1 {
		by = intermediate(by, now.Add(time.Hour))
		chain = append(chain, by.certificate)
	}
	leaf, _ = by.issue(t, pkix.Name{CommonName: "kube-apiserver"}, nil)
	_, err = known.certificates.identify(append([]*x509.Certificate{leaf}, chain...))
	require.ErrorContains(t, err, "more than 5")
}

func TestTheFileOfAuthoritiesIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newCA(t, "before"), newCA(t, "after")
		file := writeFile(t, before.pem())
		known := acceptingCertificates(t, true, file)
		logged := &callerLines{}
		ctx, stop := context.WithCancel(logr.NewContext(t.Context(), logged.logger()))
		ended := make(chan error, 1)
		go func() { ended <- known.Start(ctx) }()
		old, _ := before.issue(t, pkix.Name{CommonName: "kube-apiserver"}, nil)
		fresh, _ := after.issue(t, pkix.Name{CommonName: "kube-apiserver"}, nil)
		accepts := func(certificate *x509.Certificate) bool {
			_, err := known.certificates.identify([]*x509.Certificate{certificate})
			return err == nil
		}
		write := func(content []byte) {
			require.NoError(t, os.WriteFile(file, content, 0o600))
			time.Sleep(lookEvery + time.Second)
			synctest.Wait()
		}
		require.True(t, accepts(old))
		require.False(t, accepts(fresh))

		write(joined(before.pem(), after.pem()))
		require.True(t, accepts(old))
		require.True(t, accepts(fresh))

		both := joined(before.pem(), after.pem())
		for _, broken := range [][]byte{both[:len(both)-100], nil, []byte("text"), bytes.Repeat([]byte("x"), maxAuthorities+1)} {
			write(broken)
			require.True(t, accepts(old), "what is broken is not taken into use")
			require.True(t, accepts(fresh))
		}
		require.NoError(t, os.Remove(file))
		time.Sleep(lookEvery + time.Second)
		require.True(t, accepts(fresh))
		require.Len(t, logged.all(), 2, "one reload, and once that it went wrong: %v", logged.all())

		write(after.pem())
		require.True(t, accepts(fresh))
		require.False(t, accepts(old), "though it was remembered")
		require.InDelta(t, 2, testutil.ToFloat64(known.options.Metrics.reads.WithLabelValues("authorities", "read")), 0)
		require.InDelta(t, 5, testutil.ToFloat64(known.options.Metrics.reads.WithLabelValues("authorities", "failed")), 1)
		stop()
		require.NoError(t, <-ended)
	})
}

func TestAFileOfAuthoritiesThatIsNoneStopsTheStart(t *testing.T) {
	good := newCA(t, "right").pem()
	tests := map[string]struct {
		content []byte
		want    string
	}{
		"an empty file":              {nil, "no certificate"},
		"text":                       {[]byte("let me in"), "no certificate"},
		"half a certificate":         {good[:len(good)/2], "1 certificates begin in the file, and 0 are whole"},
		"one and a half":             {joined(good, good[:len(good)/2]), "2 certificates begin in the file, and 1 are whole"},
		"half a one before a whole":  {joined(good[:len(good)/2], good), "2 certificates begin in the file"},
		"a certificate that is none": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "parse certificate 1"},
		"a good one and a bad one":   {joined(good, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")})), "parse certificate 2"},
		"a key":                      {joined(good, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("x")})), `"PRIVATE KEY"`},
		"a huge file (F05)":          {bytes.Repeat(good, maxAuthorities/len(good)+1), "larger than 256 KiB"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := optionsOf(true)
			o.Certificates = &Certificates{CAFile: writeFile(t, tt.content), CommonNames: []string{"x"}}
			_, err := NewCallers(o)
			require.ErrorContains(t, err, tt.want)
		})
	}
	o := optionsOf(true)
	o.Certificates = &Certificates{CAFile: filepath.Join(t.TempDir(), "missing")}
	_, err := NewCallers(o)
	require.ErrorIs(t, err, os.ErrNotExist)
}
