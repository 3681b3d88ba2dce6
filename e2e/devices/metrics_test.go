package devices

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// What Kubernetes' own controller counts too (DE-57, DE-58).
const (
	deletionsTotal   = "device_taint_eviction_controller_pod_deletions_total"
	deletionsSeconds = "device_taint_eviction_controller_pod_deletion_duration_seconds"
)

// metrics returns the metrics of Tollgate by their names.
func (p *plane) metrics(ctx context.Context, t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.tollgate.MetricsURL, http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	return families
}

// waitMetric waits until the series of a metric that have all of some labels, in
// pairs of name and value, add up to a number; a histogram counts its samples.
func (p *plane) waitMetric(t *testing.T, want int, name string, labels ...string) {
	t.Helper()
	eventually(t, "metric "+name, func(ctx context.Context) error {
		total := 0.0
		for _, m := range p.metrics(ctx, t)[name].GetMetric() {
			if hasLabels(m, labels) {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
		if int(total) != want {
			return fmt.Errorf("it is %v, not %d", total, want)
		}
		return nil
	})
}

// terms returns how often Tollgate came to lead.
func (p *plane) terms(t *testing.T) int {
	t.Helper()
	terms, err := p.logLines("evictor started")
	require.NoError(t, err)
	return terms
}

// waitLeads waits until Tollgate leads, and returns how often it came to do so.
func (p *plane) waitLeads(t *testing.T) (terms int) {
	t.Helper()
	eventually(t, "Tollgate leads", func(context.Context) error {
		if terms = p.terms(t); terms == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	return terms
}

// account tells how all evictions of Tollgate ended, why attempts were repeated, and how
// often it came to lead: an answer that comes after the lease was lost is nobody's
// eviction, and one that is lost is repeated.
func (p *plane) account(t *testing.T) string {
	t.Helper()
	told := []string{fmt.Sprintf("it came to lead %d times", p.terms(t))}
	families := p.metrics(t.Context(), t)
	for _, name := range []string{"tollgate_evictions_total", "tollgate_eviction_retries_total", deletionsTotal} {
		for _, m := range families[name].GetMetric() {
			told = append(told, fmt.Sprintf("%s%v %v", name, m.GetLabel(), m.GetCounter().GetValue()))
		}
	}
	return strings.Join(told, "\n")
}

func hasLabels(m *dto.Metric, pairs []string) bool {
	has := map[string]string{}
	for _, label := range m.GetLabel() {
		has[label.GetName()] = label.GetValue()
	}
	for pair := range slices.Chunk(pairs, 2) {
		if has[pair[0]] != pair[1] {
			return false
		}
	}
	return true
}
