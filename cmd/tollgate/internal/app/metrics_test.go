package app

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/certs"
	"github.com/tollgate-dev/tollgate/controllers/audit"
	"github.com/tollgate-dev/tollgate/controllers/devicetaints"
	"github.com/tollgate-dev/tollgate/controllers/nodetaints"
	"github.com/tollgate-dev/tollgate/controllers/registration"
	"github.com/tollgate-dev/tollgate/controllers/slicepatches"
	"github.com/tollgate-dev/tollgate/controllers/status"
	"github.com/tollgate-dev/tollgate/evictor"
	"github.com/tollgate-dev/tollgate/evictor/breaker"
	"github.com/tollgate-dev/tollgate/evictor/controller"
	"github.com/tollgate-dev/tollgate/evictor/rulestatus"
	"github.com/tollgate-dev/tollgate/tracker"
	"github.com/tollgate-dev/tollgate/tracker/informer"
	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/auth"
	"github.com/tollgate-dev/tollgate/webhook/handlers"
	"github.com/tollgate-dev/tollgate/webhook/policies"
)

var update = flag.Bool("update", false, "write docs/metrics.md and testdata/surface")

const metricsFile = "../../../../docs/metrics.md"

// registerAll registers all metrics of tollgate serve except those of libraries. A test finds
// missing ones.
func registerAll(reg prometheus.Registerer) {
	Register(reg, "", "", func() bool { return false })
	certs.NewMetrics(reg)
	webhook.NewMetrics(reg)
	handlers.NewPreviewMetrics(reg)
	policies.NewMetrics(reg)
	audit.NewMetrics(reg)
	audit.NewReportMetrics(reg)
	devicetaints.NewMetrics(reg)
	slicepatches.NewMetrics(reg)
	nodetaints.NewRegisterMetrics(reg)
	registration.NewWatchMetrics(reg)
	registration.NewMetrics(reg)
	nodetaints.NewTTLMetrics(reg)
	nodetaints.NewPairingMetrics(reg)
	evictor.NewMetrics(reg)
	controller.RegisterPanics(reg)
	breaker.NewMetrics(reg)
	status.NewMetrics(reg)
	rulestatus.NewMetrics(reg)
	rulestatus.NewPatchMetrics(reg)
	informer.NewMetrics(reg)
	NewResourceMetrics(reg)
	auth.NewCallerMetrics(reg)
	NewLost(reg)
	reg.MustRegister(Collector(tracker.New().TaintedDevices))
}

// recorder is a Registerer that keeps the collectors.
type recorder struct {
	*prometheus.Registry
	collectors []prometheus.Collector
}

func (r *recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return r.Registry.Register(c)
}

func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// metric is the description of a metric.
type metric struct {
	name, kind, help string
	labels           []string
}

var descPattern = regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)

func describedMetrics(t *testing.T) []metric {
	t.Helper()
	reg := &recorder{Registry: prometheus.NewPedanticRegistry()}
	registerAll(reg)
	var all []metric
	for _, c := range reg.collectors {
		descs := make(chan *prometheus.Desc, 10)
		c.Describe(descs)
		close(descs)
		for desc := range descs {
			parts := descPattern.FindStringSubmatch(desc.String())
			require.NotNil(t, parts, desc.String())
			name, err := strconv.Unquote(parts[1])
			require.NoError(t, err)
			help, err := strconv.Unquote(parts[2])
			require.NoError(t, err)
			m := metric{name: name, kind: kindOf(t, c), help: help}
			if parts[3] != "" {
				m.labels = strings.Split(parts[3], ",")
			}
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all
}

func kindOf(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	switch c := c.(type) {
	case *prometheus.CounterVec:
		return "counter"
	case *prometheus.GaugeVec:
		return "gauge"
	case *prometheus.HistogramVec:
		return "histogram"
	case Collector, *evictor.Metrics, *informer.Metrics:
		// Their gauges are created at each scrape.
		return "gauge"
	case prometheus.Metric:
		var written dto.Metric
		require.NoError(t, c.Write(&written))
		switch {
		case written.Counter != nil:
			return "counter"
		case written.Gauge != nil:
			return "gauge"
		case written.Histogram != nil:
			return "histogram"
		}
	}
	require.Failf(t, "unknown kind of metric", "%T", c)
	return ""
}

// All declared metrics must be registered above, and so documented.
func TestNoMetricIsForgotten(t *testing.T) {
	t.Parallel()
	var registered []string
	for _, m := range describedMetrics(t) {
		registered = append(registered, m.name)
	}
	declared := map[string]string{}
	for _, dir := range []string{"api", "certs", "cmd", "controllers", "evictor", "policy", "tracker", "webhook"} {
		declaredIn(t, filepath.Join("../../../..", dir), declared)
	}
	for name, file := range declared {
		require.Contains(t, registered, name, "declared in %s: have registerAll register it", file)
	}
	require.Len(t, registered, len(slices.Compact(slices.Sorted(maps.Keys(declared)))), "as many are registered as declared")
}

// metricName matches the metric names of Tollgate, including those that Kubernetes uses.
var metricName = regexp.MustCompile(`^(tollgate|taint_eviction_controller|device_taint_eviction_controller)_[a-z_]+$`)

// declaredIn adds the metric names in the string literals of a folder, with their files.
func declaredIn(t *testing.T, dir string, found map[string]string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(node ast.Node) bool {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if name, err := strconv.Unquote(literal.Value); err == nil && metricName.MatchString(name) {
				found[name] = path
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
}

// The page is generated from the metrics by make generate.
func TestTheMetricsAreDocumentedAsTheyAre(t *testing.T) {
	t.Parallel()
	page := metricsPage(t)
	if *update {
		require.NoError(t, os.WriteFile(metricsFile, page, 0o600))
	}
	written, err := os.ReadFile(metricsFile)
	require.NoError(t, err)
	require.Equal(t, string(page), string(written), "docs/metrics.md is out of date: run make generate")
}

func metricsPage(t *testing.T) []byte {
	t.Helper()
	shipped := shippedQueries(t)
	out := bytes.NewBufferString(metricsIntro)
	out.WriteString("| metric | type | unit | labels | stability | description |\n|---|---|---|---|---|---|\n")
	for _, m := range describedMetrics(t) {
		var labels []string
		for _, label := range m.labels {
			labels = append(labels, "`"+label+"`")
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s | %s | %s |\n",
			m.name, m.kind, unitOf(t, m.name), strings.Join(labels, ", "), stabilityOf(m.name, shipped), strings.TrimSuffix(m.help, "."))
	}
	out.WriteString(metricsOutro)
	return out.Bytes()
}

// shippedQueries returns the rules and the dashboard, as text.
func shippedQueries(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range []string{"rules/tollgate.yaml", "dashboards/tollgate.json"} {
		data, err := os.ReadFile(filepath.Join("../../../../deploy/monitoring", file))
		require.NoError(t, err)
		all.Write(data)
	}
	return all.String()
}

func stabilityOf(name, shipped string) string {
	switch {
	case !strings.HasPrefix(name, "tollgate_"):
		return "Kubernetes"
	case regexp.MustCompile(`\b` + name + `(_bucket)?\b`).MatchString(shipped):
		return "stable"
	default:
		return "alpha"
	}
}

// units of metrics whose names lack one.
var units = map[string]string{
	"tollgate_api_resources":                "0 or 1",
	"tollgate_webhook_registration_pending": "0 or 1",
	"tollgate_breakers_tripped":             "policies",
	"tollgate_evictions_held":               "pods",
	"tollgate_evictions_pending":            "pods",
	"tollgate_held_registrations":           "nodes",
	"tollgate_info":                         "1",
	"tollgate_leading":                      "0 or 1",
	"tollgate_mode_misfit":                  "0 or 1",
	"tollgate_noschedule_unpaired_devices":  "taints",
	"tollgate_policies":                     "policies",
	"tollgate_policies_stale":               "0 or 1",
	"tollgate_policy_violations":            "pods",
	"tollgate_preview_pods":                 "pods",
	"tollgate_tainted_devices":              "devices",
	"tollgate_webhooks_registered":          "webhooks",
}

func unitOf(t *testing.T, name string) string {
	t.Helper()
	switch {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		return "seconds since 1970"
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_total"):
		return "count"
	}
	require.Contains(t, units, name, "its name does not say the unit")
	return units[name]
}
