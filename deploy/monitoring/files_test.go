// Package monitoring has the tests of the files beside it that need no tools. What
// Prometheus itself says about them is in e2e/monitoring.
package monitoring

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	rulesFile = "rules/tollgate.yaml"
	testsFile = "rules/tollgate.test.yaml"
	// clustersFile has the tests in which one Prometheus has two clusters.
	clustersFile = "rules/clusters.test.yaml"
	alertsDoc    = "../../docs/alerts.md"
	dashboard    = "dashboards/tollgate.json"
)

type group struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}

func groups(t *testing.T) []group {
	t.Helper()
	var file struct {
		Groups []group `json:"groups"`
	}
	require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, rulesFile)), &file))
	require.NotEmpty(t, file.Groups)
	return file.Groups
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var found []rule
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			if r.Alert != "" {
				found = append(found, r)
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

func TestEveryAlertSaysWhatIsWrongAndWhatToDo(t *testing.T) {
	t.Parallel()
	doc := read(t, alertsDoc)
	seen := map[string]bool{}
	for _, alert := range alerts(t) {
		require.False(t, seen[alert.Alert], alert.Alert)
		seen[alert.Alert] = true
		require.Contains(t, []string{"critical", "warning"}, alert.Labels["severity"], alert.Alert)
		require.True(t, strings.HasSuffix(alert.Annotations["summary"], "."), alert.Alert)
		require.True(t, strings.HasPrefix(alert.Annotations["summary"], "{{ with $labels.cluster }}{{ . }}: {{ end }}"), "%s names the cluster", alert.Alert)
		require.True(t, strings.HasSuffix(alert.Annotations["description"], "."), alert.Alert)
		require.Equal(t, "https://github.com/tollgate-dev/tollgate/blob/main/docs/alerts.md#"+strings.ToLower(alert.Alert), alert.Annotations["runbook_url"])
		require.Contains(t, doc, "\n## "+alert.Alert+"\n", "docs/alerts.md")
	}
	for _, heading := range regexp.MustCompile(`(?m)^## (\S+)$`).FindAllStringSubmatch(doc, -1) {
		require.True(t, seen[heading[1]], "docs/alerts.md has a section on %s, which is no alert", heading[1])
	}
}

func TestEveryAlertHasATestInWhichItFiresAndOneInWhichItDoesNot(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Name        string `json:"name"`
			Expressions []struct {
				Expr    string `json:"expr"`
				Samples []any  `json:"exp_samples"`
			} `json:"promql_expr_test"`
		} `json:"tests"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, testsFile)), &file))
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		alert, rest, _ := strings.Cut(test.Name, " ")
		for _, e := range test.Expressions {
			if e.Expr != `count(ALERTS{alertname="`+alert+`", alertstate="firing"})` {
				continue
			}
			require.Equal(t, len(e.Samples) > 0, strings.HasPrefix(rest, "fires"), test.Name)
			require.Equal(t, len(e.Samples) == 0, strings.HasPrefix(rest, "stays quiet"), test.Name)
			fires[alert] = fires[alert] || len(e.Samples) > 0
			quiet[alert] = quiet[alert] || len(e.Samples) == 0
		}
	}
	for _, alert := range alerts(t) {
		require.True(t, fires[alert.Alert], "no test in which %s fires", alert.Alert)
		require.True(t, quiet[alert.Alert], "no test in which %s stays quiet", alert.Alert)
	}
}

// aggregation matches an aggregation of PromQL up to the labels that it keeps.
var aggregation = regexp.MustCompile(`\b(?:sum|min|max|avg|count|group|stddev|stdvar|topk|bottomk|quantile|count_values)\b(?: (?:by|without))? ?\([^()]*`)

// requireByCluster fails if an aggregation of the expression adds clusters up.
func requireByCluster(t *testing.T, expr, where string) {
	t.Helper()
	for _, found := range aggregation.FindAllString(expr, -1) {
		require.Regexp(t, ` by \(cluster\b`, found, where)
	}
	for _, matched := range regexp.MustCompile(`\bon \(([^()]*)`).FindAllStringSubmatch(expr, -1) {
		require.Contains(t, strings.Split(matched[1], ", "), "cluster", where)
	}
}

func TestRulesJudgeEachClusterByItself(t *testing.T) {
	t.Parallel()
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			requireByCluster(t, r.Expr, r.Record+r.Alert)
		}
	}
}

// An alert that is tested without clusters alone may take one cluster's well-being for that of all.
func TestEveryAlertHasATestInWhichOneOfTwoClustersFails(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Expressions []struct {
				Expr    string `json:"expr"`
				Samples []struct {
					Labels string `json:"labels"`
				} `json:"exp_samples"`
			} `json:"promql_expr_test"`
		} `json:"tests"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, clustersFile)), &file))
	fires := map[string]bool{}
	for _, test := range file.Tests {
		for _, e := range test.Expressions {
			require.Equal(t, `count by (alertname, cluster) (ALERTS{alertstate="firing"})`, e.Expr, "counts the alerts of both clusters")
			for _, sample := range e.Samples {
				fires[sample.Labels] = true
			}
		}
	}
	for _, alert := range alerts(t) {
		east, west := `{alertname="`+alert.Alert+`", cluster="east"}`, `{alertname="`+alert.Alert+`", cluster="west"}`
		require.True(t, fires[east] || fires[west], "no test in which %s fires for one of two clusters", alert.Alert)
	}
}

func TestRecordedMetricsAreCalledLikeOnes(t *testing.T) {
	t.Parallel()
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			if r.Record != "" {
				require.Regexp(t, `^tollgate:[a-z_0-9]+:[a-z0-9_]+$`, r.Record)
			}
		}
	}
}

// panel is what of a panel is looked at here.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	} `json:"datasource"`
	Position struct {
		X int `json:"x"`
		Y int `json:"y"`
		W int `json:"w"`
		H int `json:"h"`
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID  string `json:"refId"`
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
}

func TestEveryPanelSaysWhatItShowsAndInWhat(t *testing.T) {
	t.Parallel()
	var board struct {
		UID        string `json:"uid"`
		Title      string `json:"title"`
		Templating struct {
			List []struct {
				Name       string `json:"name"`
				Type       string `json:"type"`
				Multi      bool   `json:"multi"`
				IncludeAll bool   `json:"includeAll"`
				AllValue   string `json:"allValue"`
			} `json:"list"`
		} `json:"templating"`
		Panels []panel `json:"panels"`
	}
	require.NoError(t, json.Unmarshal([]byte(read(t, dashboard)), &board))
	require.Equal(t, "tollgate", board.UID)
	require.Len(t, board.Templating.List, 3)
	require.Equal(t, "datasource", board.Templating.List[0].Type)
	cluster := board.Templating.List[1]
	require.Equal(t, "cluster", cluster.Name)
	require.True(t, cluster.Multi)
	require.True(t, cluster.IncludeAll)
	require.Equal(t, ".*", cluster.AllValue, "matches series without the label, too")
	require.Equal(t, "job", board.Templating.List[2].Name)
	// Units that Grafana knows.
	units := []string{"short", "s", "bytes", "ops", "reqps", "percentunit"}
	ids, rows := map[int]bool{}, []string{}
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.NotEmpty(t, p.Title)
		for x := range p.Position.W {
			for y := range p.Position.H {
				at := [2]int{p.Position.X + x, p.Position.Y + y}
				require.Empty(t, taken[at], "%s lies over %s", p.Title, taken[at])
				require.Less(t, at[0], 24, p.Title)
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		require.True(t, strings.HasSuffix(p.Description, "."), p.Title)
		require.Contains(t, units, p.FieldConfig.Defaults.Unit, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		for i, target := range p.Targets {
			require.Equal(t, string(rune('A'+i)), target.RefID, p.Title)
			require.True(t, strings.HasPrefix(target.Legend, "{{cluster}} "), p.Title)
			require.Contains(t, target.Expr, `cluster=~"$cluster"`, p.Title)
			requireByCluster(t, target.Expr, p.Title)
			require.Regexp(t, `job=~"\$job"|tollgate:|name=~"\.\+\[\.\]tollgate\[\.\]dev"`, target.Expr, "%s: selects the job", p.Title)
		}
	}
	require.Equal(t, []string{"Health", "Admission", "Policies", "Evictions", "Devices", "Kubernetes"}, rows)
}
