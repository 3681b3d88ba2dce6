package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/webhook"
)

// growth is what a review costs under many policies, of which one in a hundred matches, to what it costs
// under one.
type growth struct {
	label string
	many  int
	// ratios are those of each turn of both.
	ratios []float64
}

// growing are the settings for which growth is measured: one policy, and the most that are compared.
func (o *options) growing() (pairs [][2]setting) {
	if o.quick || o.rounds < 2 {
		return nil
	}
	many := slices.Max(o.policies)
	for _, by := range grants {
		group := "growth, " + by.label
		pair := [2]setting{
			{group, "1 policy", webhook.PathValidate, guards(1, all, by.grant)},
			{group, fmt.Sprintf("%d policies, 1 %% match", many), webhook.PathValidate, guards(many, onePercent, by.grant)},
		}
		if o.only == nil || o.only.MatchString(group) {
			pairs = append(pairs, pair)
		}
	}
	return pairs
}

// growth measures a pair of settings in turns, there and back: over the minutes in which so many
// policies come and go, a machine changes by more than what is looked for.
func (s *stage) growth(ctx context.Context, servers []*server, pair [2]setting, body []byte) (growth, error) {
	g := growth{label: pair[0].group, many: len(pair[1].policies)}
	order := []int{0, 1}
	for range s.options.rounds / 2 {
		var toBare [2][]float64
		for range 2 {
			for _, i := range order {
				c, err := s.under(ctx, servers, pair[i], body, 2)
				if err != nil {
					return g, err
				}
				for _, round := range c.cpu {
					toBare[i] = append(toBare[i], round[install.Name]/round[bare])
				}
			}
			slices.Reverse(order)
		}
		g.ratios = append(g.ratios, report.Mean(toBare[1])/report.Mean(toBare[0]))
	}
	return g, nil
}

func tabulateGrowth(growths []growth) report.Table {
	t := report.Table{
		Title:       fmt.Sprintf("One review by %d policies, of which 1 %% match, to one by a single policy: CPU time of Tollgate", growths[0].many),
		Explanation: fmt.Sprintf("each to bare, measured in turns there and back %d times; median (range)", len(growths[0].ratios)),
		Columns:     []string{"growth"},
	}
	for _, g := range growths {
		t.Rows = append(t.Rows, report.Row{Label: g.label, Cells: []string{report.Spread(g.ratios, 2)}})
	}
	return t
}
