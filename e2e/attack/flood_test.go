package attack

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// flooders send large reviews at the same time, and floods is for how long.
	flooders = 500
	floods   = 5 * time.Second
	// The test binary floods the URL in floodVariable instead of running tests; floodRootsVariable is the
	// certificate of its CA.
	floodVariable, floodRootsVariable = "TOLLGATE_FLOOD", "TOLLGATE_FLOOD_ROOTS"
)

// flood counts answers to reviews of almost the largest size.
type flood struct {
	mu sync.Mutex
	// Judged had a verdict, Busy were told to come again, Late did not arrive in time, and Cut lost their
	// connection while they wrote.
	Judged, Busy, Late, Cut int
	// Strange are other answers.
	Strange map[string]int
}

// String returns the counts.
func (f *flood) String() string {
	return fmt.Sprintf("%d judged, %d told to come again, %d too late, %d lost their connection, others: %v",
		f.Judged, f.Busy, f.Late, f.Cut, f.Strange)
}

// startFlood sends large reviews from a process of its own until stop is called, which returns their answers. The
// process has the lowest priority: an attacker on another machine takes no processor from Tollgate and the API server.
func startFlood(t *testing.T) (stop func() *flood) {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "nice", "-n", "19", program)
	cmd.Env = append(os.Environ(), floodVariable+"="+tollgate.WebhookURL, floodRootsVariable+"="+string(caCertificate(t)))
	var answers bytes.Buffer
	cmd.Stdout, cmd.Stderr = &answers, os.Stderr
	require.NoError(t, cmd.Start())
	return func() *flood {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, cmd.Wait())
		f := &flood{}
		require.NoError(t, json.Unmarshal(answers.Bytes(), f))
		return f
	}
}

// runFlood floods a URL until the process is told to end, writes the answers to standard output, and returns the exit
// code.
func runFlood(url string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(os.Getenv(floodRootsVariable)))
	f := &flood{Strange: map[string]int{}}
	f.rush(ctx, roots, url)
	if err := json.NewEncoder(os.Stdout).Encode(f); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// rush sends a large review from each client again and again until ctx is done.
func (f *flood) rush(ctx context.Context, roots *x509.CertPool, url string) {
	body := review(ordinary, "default", "")
	note := []byte(`"metadata":{`)
	large := bytes.Replace(body, note, fmt.Appendf(note, `"annotations":{"a":"%s"},`, strings.Repeat("x", 6900<<10)), 1)
	var running sync.WaitGroup
	for range flooders {
		client := &http.Client{Transport: transport(roots, attackerAddress)}
		running.Go(func() {
			for ctx.Err() == nil {
				f.send(ctx, client, url, large)
			}
		})
	}
	running.Wait()
}

func (f *flood) send(ctx context.Context, client *http.Client, url string, body []byte) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/validate?timeout=30s", bytes.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			f.count(&f.Cut)
		}
		return
	}
	defer func() { _ = response.Body.Close() }()
	text, _ := io.ReadAll(response.Body)
	switch {
	case response.StatusCode == http.StatusOK:
		f.count(&f.Judged)
	case response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") != "":
		f.count(&f.Busy)
	case strings.Contains(string(text), "did not arrive in time"):
		f.count(&f.Late)
	default:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.Strange[fmt.Sprintf("%d %s", response.StatusCode, text)]++
	}
}

func (f *flood) count(n *int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*n++
}
