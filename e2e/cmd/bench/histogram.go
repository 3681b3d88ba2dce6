package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// latenessMetric is Tollgate's own account.
const latenessMetric = "tollgate_eviction_lateness_seconds"

// lateness is the 99th percentile of what Tollgate says about how late it was for
// taints of rules, and not a number if it is not Tollgate: the metric of the
// built-in evictor is in no unit of time.
func (r started) lateness(ctx context.Context) (float64, error) {
	if r.metricsURL == "" {
		return math.NaN(), nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.metricsURL, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("scrape metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("scrape metrics: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	return latenessIn(response.Body)
}

func latenessIn(metrics io.Reader) (float64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	for _, metric := range families[latenessMetric].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "source" && label.GetValue() == "devicetaintrule" {
				return quantile(0.99, metric.GetHistogram())
			}
		}
	}
	return 0, errors.New("read metrics: no " + latenessMetric + " of rules")
}

// quantile estimates a quantile as Prometheus' histogram_quantile does: by a
// straight line through the bucket that it falls into.
func quantile(q float64, histogram *dto.Histogram) (float64, error) {
	rank := q * float64(histogram.GetSampleCount())
	var bound, count float64
	for _, bucket := range histogram.GetBucket() {
		above, upTo := bucket.GetUpperBound(), float64(bucket.GetCumulativeCount())
		if upTo >= rank && upTo > count {
			return bound + (above-bound)*(rank-count)/(upTo-count), nil
		}
		bound, count = above, upTo
	}
	return 0, errors.New("read metrics: the histogram is empty")
}
