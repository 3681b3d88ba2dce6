package balancer

import (
	"context"
	"io"
	"net/http"
	"time"
)

// probeTimeout is after how long a replica that does not answer counts as not ready.
const probeTimeout = time.Second

// follow asks a replica whether it is ready until ctx ends.
func (b *Balancer) follow(ctx context.Context, index int, backend Backend) {
	ticker := time.NewTicker(b.options.Interval)
	defer ticker.Stop()
	client := &http.Client{Timeout: probeTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	var late delayed
	for {
		ready := probe(ctx, client, backend.ReadyURL)
		given := late.after(b.options.Delay, ready, time.Now())
		b.mu.Lock()
		b.endpoints[index].given = given
		b.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func probe(ctx context.Context, client *http.Client, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}

// delayed is a value that is heard of late. A change that is taken back meanwhile is
// never heard of.
type delayed struct {
	known bool
	// since is when the value was first seen to be another; zero while it is not.
	since time.Time
}

// after returns what is known at now of a value that is seen then.
func (d *delayed) after(delay time.Duration, seen bool, now time.Time) bool {
	if seen == d.known {
		d.since = time.Time{}
		return d.known
	}
	if d.since.IsZero() {
		d.since = now
	}
	if now.Sub(d.since) >= delay {
		d.known, d.since = seen, time.Time{}
	}
	return d.known
}
