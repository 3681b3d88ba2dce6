package monitoring

import (
	"errors"
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	prometheusquery "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/stretchr/testify/require"
)

// Grafana generates these types, and the packages of its plugins, from the schemas of its dashboards.
// They refuse fields that a dashboard, a panel, its options, its custom field configuration or a
// query of Prometheus does not have, and name those that are missing. They let through unknown fields
// of fieldConfig.defaults, and unknown values of fields that have a set of them.
func TestTheDashboardHasTheFormOfGrafanasSchema(t *testing.T) {
	cog.NewRuntime().RegisterPanelcfgVariant(stat.VariantConfig())
	cog.NewRuntime().RegisterPanelcfgVariant(timeseries.VariantConfig())
	cog.NewRuntime().RegisterDataqueryVariant(prometheusquery.VariantConfig())
	data, err := os.ReadFile(shipped("dashboards", "tollgate.json"))
	require.NoError(t, err)

	var board dashboard.Dashboard //nolint:staticcheck // The file has the classic form, not that of v2.
	require.Empty(t, problems(board.UnmarshalJSONStrict(data)))
	require.Empty(t, problems(board.Validate()))
	require.Greater(t, len(board.Panels), 40)
}

// problems returns what the types of Grafana say. They return a list as an error, also an empty one.
func problems(err error) []string {
	var list cog.BuildErrors
	if !errors.As(err, &list) {
		if err != nil {
			return []string{err.Error()}
		}
		return nil
	}
	var all []string
	for _, each := range list {
		all = append(all, each.Error())
	}
	return all
}
