package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	require.NoError(t, poll(t.Context(), what, check))
}

func TestAllTargetsAreUp(t *testing.T) {
	for name, p := range map[string]*prometheus{"east": scraper, "west": agent} {
		eventually(t, "targets of "+name+" are up", p.up)
	}
}

// up reports whether a Prometheus scrapes all that there is in its cluster.
func (p *prometheus) up(ctx context.Context) error {
	var data struct {
		Active []struct {
			Labels map[string]string `json:"labels"`
			Health string            `json:"health"`
			Error  string            `json:"lastError"`
		} `json:"activeTargets"`
	}
	if err := p.get(ctx, "targets", nil, &data); err != nil {
		return err
	}
	if len(data.Active) != 3 {
		return fmt.Errorf("%d targets", len(data.Active))
	}
	for _, target := range data.Active {
		if target.Health != "up" {
			return fmt.Errorf("%s is %s: %s", target.Labels["job"], target.Health, target.Error)
		}
	}
	return nil
}

// evictedPods is what a dashboard would say of how many pods were evicted.
func (c *cluster) evictedPods() string {
	return `sum(tollgate_evictions_total{outcome="evicted", cluster="` + c.name + `"})`
}

func TestTheCounterOfEvictionsRisesWithAnEviction(t *testing.T) {
	client, err := east.client()
	require.NoError(t, err)
	name, err := east.CreateNamespace(t.Context(), "rises-")
	require.NoError(t, err)
	// What is evicted before the test is over by now, or is held.
	eventually(t, "earlier evictions are counted", func(ctx context.Context) error {
		if evicted, err := scraper.total(ctx, east.evictedPods()); err != nil || evicted < 5 {
			return errors.Join(err, fmt.Errorf("%v evicted", evicted))
		}
		return nil
	})
	before, err := scraper.total(t.Context(), east.evictedPods())
	require.NoError(t, err)
	kubernetesName := `taint_eviction_controller_pod_deletions_total{cluster="east"}`
	deleted, err := scraper.total(t.Context(), kubernetesName)
	require.NoError(t, err)
	node := controlplane.NodeName(4)
	pod := newPod("leaves")
	pod.Spec.NodeName = node
	require.NoError(t, create(t.Context(), client, name, pod))
	require.NoError(t, taint(t.Context(), client, node, plainKey))
	t.Cleanup(func() {
		_, err := client.CoreV1().Nodes().Patch(context.WithoutCancel(t.Context()), node, types.MergePatchType,
			[]byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
	})
	for query, from := range map[string]float64{east.evictedPods(): before, kubernetesName: deleted} {
		eventually(t, query, func(ctx context.Context) error {
			if now, err := scraper.total(ctx, query); err != nil || now != from+1 {
				return errors.Join(err, fmt.Errorf("%v, not %v", now, from+1))
			}
			return nil
		})
	}
}

// quietQueries have nothing to say here, with the reason.
var quietQueries = map[string]string{
	"tollgate:admission_errors:ratio5m":      "no review is without a decision; recorded once one is",
	"tollgate_watch_restarts_total":          "no watch is silent here",
	"tollgate_policies_watch_blind_total":    "no watch is blind here",
	"tollgate_eviction_approvals_used_total": "nothing is approved here",
}

func quiet(query string) bool {
	for name := range quietQueries {
		if strings.Contains(query, name) {
			return true
		}
	}
	return false
}

// selections are values of the variable cluster of the dashboard as Grafana sends them, with the
// clusters that are chosen by them.
var selections = map[string]struct {
	value string
	chose []*cluster
}{
	"one cluster":              {"east", []*cluster{east}},
	"the other one":            {"west", []*cluster{west}},
	"both":                     {"(east|west)", []*cluster{east, west}},
	"all":                      {".*", []*cluster{east, west}},
	"one that does not exist":  {"north", nil},
	"one and another, unknown": {"(north|west)", []*cluster{west}},
}

func TestEveryQueryOfTheDashboardHasDataOfTheClustersThatAreChosen(t *testing.T) {
	for name, selection := range selections {
		for title, queries := range dashboardQueries(t, selection.value) {
			for _, query := range queries {
				t.Run(name+": "+title, func(t *testing.T) {
					if quiet(query) {
						_, err := scraper.query(t.Context(), query)
						require.NoError(t, err)
						return
					}
					eventually(t, query, func(ctx context.Context) error { return scraper.clusters(ctx, query, selection.chose...) })
				})
			}
		}
	}
}

// dashboardQueries returns the queries of the dashboard by the title of their panel, as
// Grafana sends them for a value of the variable cluster.
func dashboardQueries(t *testing.T, cluster string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(shipped("dashboards", "tollgate.json"))
	require.NoError(t, err)
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
		Annotations struct {
			List []struct {
				Name string `json:"name"`
				Expr string `json:"expr"`
			} `json:"list"`
		} `json:"annotations"`
	}
	require.NoError(t, json.Unmarshal(data, &board))
	variables := strings.NewReplacer("$cluster", cluster, "$job", ".+", "$__rate_interval", "5m")
	queries := map[string][]string{}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries[panel.Title] = append(queries[panel.Title], variables.Replace(target.Expr))
		}
	}
	for _, annotation := range board.Annotations.List {
		// There is a point where the leader changed, and here it does not.
		_, err := scraper.query(t.Context(), variables.Replace(annotation.Expr))
		require.NoError(t, err)
	}
	require.Greater(t, len(queries), 30)
	return queries
}

// loadedRule is a rule as Prometheus has it.
type loadedRule struct {
	Name   string `json:"name"`
	Query  string `json:"query"`
	Health string `json:"health"`
	Error  string `json:"lastError"`
	Type   string `json:"type"`
}

func loadedRules(ctx context.Context) ([]loadedRule, error) {
	var data struct {
		Groups []struct {
			Rules []loadedRule `json:"rules"`
		} `json:"groups"`
	}
	err := scraper.get(ctx, "rules", nil, &data)
	var all []loadedRule
	for _, group := range data.Groups {
		all = append(all, group.Rules...)
	}
	return all, err
}

func TestAllRulesAreEvaluated(t *testing.T) {
	eventually(t, "rules are healthy", func(ctx context.Context) error {
		rules, err := loadedRules(ctx)
		if err == nil && len(rules) < 40 {
			err = fmt.Errorf("%d rules", len(rules))
		}
		for _, rule := range rules {
			if rule.Health != "ok" {
				err = errors.Join(err, fmt.Errorf("%s is %s: %s", rule.Name, rule.Health, rule.Error))
			}
		}
		return err
	})
}

// What is recorded of two clusters is two series, and an alert is of one of them.
func TestEveryRuleKeepsTheClustersApart(t *testing.T) {
	rules, err := loadedRules(t.Context())
	require.NoError(t, err)
	for _, rule := range rules {
		t.Run(rule.Name, func(t *testing.T) {
			if rule.Type == "recording" && !quiet(rule.Name) {
				eventually(t, rule.Name, func(ctx context.Context) error {
					return errors.Join(scraper.clusters(ctx, rule.Query, both()...), scraper.clusters(ctx, rule.Name, both()...))
				})
			}
			samples, err := scraper.query(t.Context(), rule.Query)
			require.NoError(t, err)
			for _, found := range samples {
				require.Contains(t, []string{east.name, west.name}, found.Metric["cluster"])
			}
		})
	}
}

func TestTheAlertOfAClusterWithoutTollgateNamesThatOneAlone(t *testing.T) {
	const absent = `ALERTS{alertstate="firing", alertname="TollgateAbsent"}`
	eventually(t, "both clusters are known", func(ctx context.Context) error {
		return scraper.clusters(ctx, "tollgate:replicas:count", both()...)
	})
	require.NoError(t, scraper.clusters(t.Context(), missing(t)))
	require.NoError(t, west.tollgate.Terminate(t.Context()))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, west.tollgate.Start(ctx))
		require.NoError(t, poll(ctx, "the alert ends", func(ctx context.Context) error { return scraper.clusters(ctx, absent) }))
	})
	eventually(t, "the alert of west", func(ctx context.Context) error { return scraper.clusters(ctx, absent, west) })
	require.NoError(t, scraper.clusters(t.Context(), missing(t), west))
	// The leader of the other cluster goes on as if nothing was.
	require.NoError(t, scraper.clusters(t.Context(), "tollgate_leading == 1", east))
	others, err := scraper.query(t.Context(), `ALERTS{alertstate="firing", alertname=~"TollgateNoLeader|TollgateTwoLeaders"}`)
	require.NoError(t, err)
	require.Empty(t, others)
}

// missing returns the expression of the rule that docs/alerts.md gives to those whose clusters all
// have Tollgate.
func missing(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(programs.Root + "/docs/alerts.md")
	require.NoError(t, err)
	found := regexp.MustCompile(`- alert: TollgateMissing\n  expr: (.*)\n`).FindSubmatch(page)
	require.NotNil(t, found)
	return string(found[1])
}

func TestAnAlertFiresWhenWhatItIsAboutIsSo(t *testing.T) {
	firing := func(names string) string { return `ALERTS{alertstate="firing", alertname=~"` + names + `"}` }
	eventually(t, "the alert of the breaker that holds", func(ctx context.Context) error {
		return scraper.clusters(ctx, firing("TollgateBreakerTripped"), both()...)
	})
	// Those that a slow machine is no reason for.
	wrong, err := scraper.query(t.Context(), firing("TollgateAbsent|TollgateTwoLeaders|TollgateCertificate.*|TollgateBothEvictorsActive|TollgateEvictionsHeld"))
	require.NoError(t, err)
	require.Empty(t, wrong)
}

// quietSelectors have no series here, with the reason.
var quietSelectors = map[string]string{
	`tollgate:admission_errors:ratio5m`:                                                                           "no review is without a decision",
	`tollgate_admission_requests_total{verdict="error"}`:                                                          "likewise",
	`tollgate_policies_watch_blind_total`:                                                                         "no watch is blind here",
	`tollgate_webhook_registration_pending`:                                                                       "the webhooks are registered by hand here",
	`tollgate_eviction_retries_total{reason=~"denied|invalid|budgets"}`:                                           "nobody refuses evictions here",
	`apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name=~".+[.]tollgate[.]dev"}`: "no call fails here",
	`apiserver_admission_webhook_fail_open_count{name=~".+[.]tollgate[.]dev"}`:                                    "likewise",
}

// An alert says nothing while all is well. What it looks at has to be there all the same, with
// these names and these values of labels.
func TestWhatRulesLookAtIsThere(t *testing.T) {
	rules, err := loadedRules(t.Context())
	require.NoError(t, err)
	looked := map[string]bool{}
	for _, rule := range rules {
		var tree any
		require.NoError(t, scraper.get(t.Context(), "parse_query", url.Values{"query": {rule.Query}}, &tree), rule.Name)
		for _, selector := range selectorsIn(tree) {
			if looked[selector] {
				continue
			}
			looked[selector] = true
			if _, ok := quietSelectors[selector]; ok {
				continue
			}
			t.Run(rule.Name, func(t *testing.T) {
				// A counter may be gone where Tollgate was started anew.
				seen := "last_over_time(" + selector + "[1h])"
				eventually(t, selector, func(ctx context.Context) error { return scraper.clusters(ctx, seen, both()...) })
			})
		}
	}
	for selector := range quietSelectors {
		require.True(t, looked[selector], "no rule looks at %s", selector)
	}
}

// selectorsIn returns the selectors of an expression, as Prometheus parsed it.
func selectorsIn(tree any) []string {
	var found []string
	switch node := tree.(type) {
	case []any:
		for _, child := range node {
			found = append(found, selectorsIn(child)...)
		}
	case map[string]any:
		if matchers, ok := node["matchers"].([]any); ok {
			return []string{selectorOf(matchers)}
		}
		for _, child := range node {
			found = append(found, selectorsIn(child)...)
		}
	}
	return found
}

func selectorOf(matchers []any) string {
	name, labels := "", []string{}
	for _, each := range matchers {
		matcher, _ := each.(map[string]any)
		if matcher["name"] == "__name__" {
			name = fmt.Sprint(matcher["value"])
			continue
		}
		labels = append(labels, fmt.Sprintf("%s%s%q", matcher["name"], matcher["type"], matcher["value"]))
	}
	if len(labels) == 0 {
		return name
	}
	slices.Sort(labels)
	return name + "{" + strings.Join(labels, ",") + "}"
}

func TestEveryMetricThatIsScrapedIsDocumented(t *testing.T) {
	page, err := os.ReadFile(programs.Root + "/docs/metrics.md")
	require.NoError(t, err)
	documented := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([a-z]+) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[row[1]] = row[2]
	}
	require.Greater(t, len(documented), 40)
	prefixes := regexp.MustCompile("`([a-z_]+_)`").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, prefixes)
	var metadata []struct {
		Metric string `json:"metric"`
		Type   string `json:"type"`
	}
	eventually(t, "metadata", func(ctx context.Context) error {
		err := scraper.get(ctx, "targets/metadata", url.Values{"match_target": {`{job="tollgate"}`}}, &metadata)
		if err == nil && len(metadata) < 50 {
			err = fmt.Errorf("%d metrics", len(metadata))
		}
		return err
	})
	for _, m := range metadata {
		if kind, ok := documented[m.Metric]; ok {
			require.Equal(t, kind, m.Type, m.Metric)
			continue
		}
		require.True(t, strings.HasPrefix(m.Metric, "workqueue_") || slices.ContainsFunc(prefixes, func(prefix []string) bool {
			return strings.HasPrefix(m.Metric, prefix[1])
		}), "%s is not in docs/metrics.md", m.Metric)
	}
	queues, err := scraper.query(t.Context(), `count by (name) (workqueue_depth{job="tollgate"})`)
	require.NoError(t, err)
	require.NotEmpty(t, queues)
	for _, queue := range queues {
		require.Contains(t, string(page), "`"+queue.Metric["name"]+"`", "queues")
	}
}
