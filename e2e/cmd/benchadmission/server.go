package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	loopback = "127.0.0.1"
	// connections are open to a server, as many as an API server under some load has.
	connections = 8
	// answerTimeout is far above what an answer takes.
	answerTimeout = 30 * time.Second
)

// server is a process that answers reviews.
type server struct {
	name string
	url  string
	// pid is that of the process.
	pid int
	// ca is what its certificate is trusted by.
	ca []byte
	// clients have a connection each.
	clients []*http.Client
	// allocated returns how many bytes the process has allocated since it started.
	allocated func(context.Context) (float64, error)
}

// connect opens the connections of a server when they are first used.
func (s *server) connect() error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.ca) {
		return fmt.Errorf("trust %s: no certificate", s.name)
	}
	for range connections {
		// HTTP/1.1, as API servers call webhooks: k8s.io/apiserver/pkg/util/webhook/client.go.
		s.clients = append(s.clients, &http.Client{Timeout: answerTimeout, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		}})
	}
	return nil
}

// disconnect closes the connections.
func (s *server) disconnect() {
	for _, client := range s.clients {
		client.CloseIdleConnections()
	}
	s.clients = nil
}

// review sends one review n times, over all connections at once, and fails if an answer does not
// contain every text of want.
func (s *server) review(ctx context.Context, path string, body []byte, n int, want ...string) error {
	jobs, ctx := errgroup.WithContext(ctx)
	for i, client := range s.clients {
		jobs.Go(func() error {
			for range (n + i) / connections {
				answer, err := send(ctx, client, s.url+path, body)
				if err != nil {
					return fmt.Errorf("ask %s: %w", s.name, err)
				}
				if !containsAll(answer, want) {
					return fmt.Errorf("ask %s: the answer is %s, without %q", s.name, answer, want)
				}
			}
			return nil
		})
	}
	return jobs.Wait()
}

func containsAll(answer []byte, texts []string) bool {
	for _, text := range texts {
		if !bytes.Contains(answer, []byte(text)) {
			return false
		}
	}
	return true
}

func send(ctx context.Context, client *http.Client, url string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	return do(client, request)
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return do(client, request)
}

func do(client *http.Client, request *http.Request) ([]byte, error) {
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", response.Status, answer)
	}
	if response.TLS != nil && response.ProtoMajor != 1 {
		return nil, errors.New("the connection is not one of HTTP/1.1")
	}
	return answer, nil
}
