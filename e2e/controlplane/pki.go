package controlplane

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/cert-manager/cert-manager/pkg/util/pki"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// certificateLife is longer than anyone leaves a throw-away control plane up.
const certificateLife = 365 * 24 * time.Hour

// serviceIP is the first address of serviceRange, which the API server takes
// for its own Service.
const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// authority is the certificate authority that everyone in a control plane
// trusts, for serving and for clients.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  crypto.Signer
}

// keyPair is a certificate and its key, as PEM.
type keyPair struct{ cert, key []byte }

func newAuthority() (*authority, error) {
	template, err := template(certmanagerv1.CertificateSpec{
		CommonName: "tollgate-e2e",
		IsCA:       true,
		Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageCertSign, certmanagerv1.UsageDigitalSignature},
	})
	if err != nil {
		return nil, err
	}
	key, err := pki.GenerateECPrivateKey(pki.ECCurve256)
	if err != nil {
		return nil, fmt.Errorf("generate key of authority: %w", err)
	}
	pem, cert, err := pki.SignCertificate(template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate of authority: %w", err)
	}
	return &authority{pem: pem, cert: cert, key: key}, nil
}

// serving issues the one certificate that all components serve with.
func (a *authority) serving() (keyPair, error) {
	return a.issue(certmanagerv1.CertificateSpec{
		CommonName:  "kube-apiserver",
		DNSNames:    []string{"localhost", "kubernetes.default.svc"},
		IPAddresses: []string{loopback, serviceIP},
		// etcd calls itself as a client with its serving certificate.
		Usages: []certmanagerv1.KeyUsage{
			certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageServerAuth, certmanagerv1.UsageClientAuth,
		},
	})
}

// client issues a certificate that the API server takes for the user and groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.issue(certmanagerv1.CertificateSpec{
		CommonName: user,
		Subject:    &certmanagerv1.X509Subject{Organizations: groups},
		Usages:     []certmanagerv1.KeyUsage{certmanagerv1.UsageDigitalSignature, certmanagerv1.UsageClientAuth},
	})
}

func (a *authority) issue(spec certmanagerv1.CertificateSpec) (keyPair, error) {
	template, err := template(spec)
	if err != nil {
		return keyPair{}, err
	}
	key, err := pki.GenerateECPrivateKey(pki.ECCurve256)
	if err != nil {
		return keyPair{}, fmt.Errorf("generate key of %s: %w", spec.CommonName, err)
	}
	cert, _, err := pki.SignCertificate(template, a.cert, key.Public(), a.key)
	if err != nil {
		return keyPair{}, fmt.Errorf("sign certificate of %s: %w", spec.CommonName, err)
	}
	keyPEM, err := pki.EncodePrivateKey(key, certmanagerv1.PKCS8)
	if err != nil {
		return keyPair{}, fmt.Errorf("encode key of %s: %w", spec.CommonName, err)
	}
	return keyPair{cert: cert, key: keyPEM}, nil
}

func template(spec certmanagerv1.CertificateSpec) (*x509.Certificate, error) {
	spec.Duration = &metav1.Duration{Duration: certificateLife}
	spec.PrivateKey = &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.ECDSAKeyAlgorithm}
	cert, err := pki.CertificateTemplateFromCertificate(&certmanagerv1.Certificate{Spec: spec})
	if err != nil {
		return nil, fmt.Errorf("describe certificate of %s: %w", spec.CommonName, err)
	}
	return cert, nil
}

// paths of the files that components read keys and certificates from.
type pkiPaths struct{ ca, caKey, proxyCA, cert, key, serviceAccountKey string }

func pkiIn(dir string) pkiPaths {
	return pkiPaths{
		ca:                filepath.Join(dir, "pki", "ca.crt"),
		caKey:             filepath.Join(dir, "pki", "ca.key"),
		proxyCA:           filepath.Join(dir, "pki", "front-proxy-ca.crt"),
		cert:              filepath.Join(dir, "pki", "serving.crt"),
		key:               filepath.Join(dir, "pki", "serving.key"),
		serviceAccountKey: filepath.Join(dir, "pki", "service-account.key"),
	}
}

// write puts the authority, a serving certificate and a key for service
// account tokens where the components look for them. Who has a certificate of
// the front proxy's authority may speak for anyone, so that is another one; its
// key is not kept, as there is no front proxy.
func (a *authority) write(paths pkiPaths) error {
	serving, err := a.serving()
	if err != nil {
		return err
	}
	proxy, err := newAuthority()
	if err != nil {
		return err
	}
	caKey, err := pki.EncodePrivateKey(a.key, certmanagerv1.PKCS8)
	if err != nil {
		return fmt.Errorf("encode key of authority: %w", err)
	}
	signer, err := pki.GenerateECPrivateKey(pki.ECCurve256)
	if err != nil {
		return fmt.Errorf("generate key for service accounts: %w", err)
	}
	// The older encoding: it is the one the API server reads both halves from.
	signerPEM, err := pki.EncodePrivateKey(signer, certmanagerv1.PKCS1)
	if err != nil {
		return fmt.Errorf("encode key for service accounts: %w", err)
	}
	for path, content := range map[string][]byte{
		paths.ca: a.pem, paths.caKey: caKey, paths.proxyCA: proxy.pem,
		paths.cert: serving.cert, paths.key: serving.key,
		paths.serviceAccountKey: signerPEM,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return fmt.Errorf("write key material: %w", err)
		}
	}
	return nil
}
