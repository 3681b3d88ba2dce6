package attack

import (
	"bytes"
	"crypto/x509"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

const (
	// longest is the largest review that is read.
	longest = 7 << 20
	// growth is what one review that is too large may take at most. Where other tests share the machine, the
	// collector comes later.
	growth, growthBeside = 16 << 20, 32 << 20
)

func TestA01ABodyThatIsTooLargeTakesLittleMemory(t *testing.T) {
	roots := caBundle(t)
	limit := growthBeside
	if _, measured := duration(t); measured {
		limit = growth
	}
	body := bytes.Repeat([]byte(" "), longest+1)
	for name, of := range map[string]func() io.Reader{
		"of a length that is said": func() io.Reader { return bytes.NewReader(body) },
		"in chunks":                func() io.Reader { return struct{ io.Reader }{bytes.NewReader(body)} },
	} {
		for protocol, client := range map[string]*http.Client{
			"HTTP/1.1": {Transport: plainTransport(roots, attackerAddress)}, "HTTP/2": {Transport: transport(roots, attackerAddress)},
		} {
			t.Run(name+" over "+protocol, func(t *testing.T) {
				atRest(t)
				before, _ := memory(t)
				forgetMost(t)
				// A client that writes while it is refused may lose the answer, so it asks before it writes.
				status, text := send(t, client, of())
				_, most := memory(t)
				require.Equal(t, http.StatusRequestEntityTooLarge, status, text)
				t.Logf("%.1f MiB before, %.1f MiB more at most", mebibytes(before), mebibytes(most-before))
				require.LessOrEqual(t, most-before, int64(limit))
				allowed, err := newCaller(roots, attackerAddress).ask(t.Context(), review(ordinary, "default", ""))
				require.NoError(t, err, "the next review is answered")
				require.True(t, allowed)
			})
		}
	}
}

// plainTransport is transport over HTTP/1.1.
func plainTransport(roots *x509.CertPool, from string) *http.Transport {
	over := transport(roots, from)
	over.ForceAttemptHTTP2 = false
	over.Protocols = new(http.Protocols)
	over.Protocols.SetHTTP1(true)
	over.ExpectContinueTimeout = reviewTimeout
	return over
}

func send(t *testing.T, client *http.Client, body io.Reader) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tollgate.WebhookURL+"/validate", body)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue")
	response, err := client.Do(request)
	require.NoError(t, err)
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode, string(answer)
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// Reviews of 3.4 GiB in sum come at the same time. They are for another endpoint than small ones, so
// that the metrics of these are apart.
func TestA02AFloodOfLargeBodiesKeepsNoSmallReviewFromItsVerdict(t *testing.T) {
	requireMeasured(t)
	roots := caBundle(t)
	atRest(t)
	before, _ := memory(t)
	forgetMost(t)
	start := admitted(t, "mutate")
	stop := startFlood(t)
	small := &measurement{}
	caller := newCaller(roots, "127.0.0.1")
	var asking sync.WaitGroup
	every(t.Context(), floods, perSecond, func() {
		asking.Go(func() {
			began := time.Now()
			allowed, err := caller.askAt(t.Context(), "/mutate?timeout=3s", review(ordinary, "default", ""))
			small.note(time.Since(began), allowed, err)
		})
	})
	asking.Wait()
	large := stop()
	_, most := memory(t)

	took := admitted(t, "mutate")
	t.Logf("large: %v", large)
	t.Logf("small, with the way there and back: %v", small)
	t.Logf("small, in Tollgate: %d reviews, 99%% within %s", took.GetSampleCount()-start.GetSampleCount(), within(start, took, 0.99))
	t.Logf("memory: %.0f MiB before, %.0f MiB at most", mebibytes(before), mebibytes(most))
	require.Empty(t, small.failures())
	// Whether one arrives in time hangs on how busy the machine is.
	require.Positive(t, large.Judged+large.Late, "some of them have room")
	require.Positive(t, large.Busy, "others are told so")
	require.Empty(t, large.Strange)
	require.LessOrEqual(t, most, int64(memoryLimit), "and the kernel kills what has more")
}

// admitted returns how long reviews of pods took in Tollgate that were allowed by an endpoint.
func admitted(t *testing.T, endpoint string) *dto.Histogram {
	t.Helper()
	family, err := series(t.Context(), "tollgate_admission_duration_seconds")
	require.NoError(t, err)
	for _, metric := range family.GetMetric() {
		labels := map[string]string{}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if labels["endpoint"] == endpoint && labels["resource"] == "pods" && labels["verdict"] == "allowed" {
			return metric.GetHistogram()
		}
	}
	return &dto.Histogram{}
}

// within returns the bound of the bucket below which so many reviews were, between two readings.
func within(before, after *dto.Histogram, part float64) time.Duration {
	earlier := map[float64]uint64{}
	for _, bucket := range before.GetBucket() {
		earlier[bucket.GetUpperBound()] = bucket.GetCumulativeCount()
	}
	all := after.GetSampleCount() - before.GetSampleCount()
	for _, bucket := range after.GetBucket() {
		if n := bucket.GetCumulativeCount() - earlier[bucket.GetUpperBound()]; float64(n) >= part*float64(all) {
			return time.Duration(bucket.GetUpperBound() * float64(time.Second))
		}
	}
	return time.Hour
}
