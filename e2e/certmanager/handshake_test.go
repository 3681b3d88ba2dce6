package certmanager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
)

// handshake opens a connection to Tollgate as an API server does that has none: it trusts
// what the webhooks' bundles hold at that moment, each of them. It returns the
// certificate that it met.
func handshake(ctx context.Context, client kubernetes.Interface, serverName string) (*x509.Certificate, error) {
	all, err := bundles(ctx, client)
	if err != nil {
		return nil, err
	}
	var met *x509.Certificate
	for webhook, bundle := range all {
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("webhook %s has no CA", webhook)
		}
		dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: serverName, MinVersion: tls.VersionTLS12}}
		connection, err := dialer.DialContext(ctx, "tcp", webhookAddress)
		if err != nil {
			return nil, fmt.Errorf("webhook %s: %w", webhook, err)
		}
		secured, ok := connection.(*tls.Conn)
		if !ok {
			return nil, errors.Join(fmt.Errorf("%T is no TLS", connection), connection.Close())
		}
		met = secured.ConnectionState().PeerCertificates[0]
		if err := connection.Close(); err != nil {
			return nil, err
		}
	}
	return met, nil
}
