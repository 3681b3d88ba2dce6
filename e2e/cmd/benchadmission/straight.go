package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/install"
	"github.com/tollgate-dev/tollgate/webhook"
)

const (
	// batch is how many reviews a server gets before it is the turn of the next one.
	batch = 100
	// warmUp is how many times as many reviews as in a round a server gets before it is measured.
	warmUp = 8
	// tries are for a setting under which a server gave an answer that it should not give.
	tries = 3
)

// What the answer to a review says.
const (
	saysAllowed = `"allowed":true`
	saysRefused = `"allowed":false`
	saysPatch   = `"patch":`
)

// setting is what Tollgate reviews a pod by.
type setting struct {
	// group and label are its two parts of the name.
	group    string
	label    string
	path     string
	policies []client.Object
}

func (s setting) String() string { return s.group + ", " + s.label }

// grants are the ways to grant the toleration that are compared.
var grants = []struct {
	label string
	grant v1alpha1.TolerationGrant
}{
	{"by namespace", v1alpha1.TolerationGrant{Namespaces: []string{granted}}},
	{"by RBAC", v1alpha1.TolerationGrant{RBAC: true}},
	{"by expression", v1alpha1.TolerationGrant{
		Expression: `toleration.key == "` + taintKey + `" && pod.metadata.labels.app == "` + granted + `"`,
	}},
}

// settings are those that are compared.
func (o *options) settings() []setting {
	const validating, mutating = "Tollgate, validating", "Tollgate, mutating"
	list := []setting{{group: validating, label: "no policy", path: webhook.PathValidate}}
	shares := []struct {
		label   string
		matches matching
	}{{"1 % match", onePercent}, {"all match", all}}
	add := func(group, label, path string, policies func(n int, matches matching) []client.Object) {
		list = append(list, setting{group, label + ", 1 policy", path, policies(1, all)})
		for _, n := range o.policies {
			for _, share := range shares {
				list = append(list, setting{
					group, label + ", " + strconv.Itoa(n) + " policies, " + share.label, path, policies(n, share.matches),
				})
			}
		}
	}
	for _, by := range grants {
		add(validating, by.label, webhook.PathValidate, func(n int, matches matching) []client.Object {
			return guards(n, matches, by.grant)
		})
	}
	list = append(list, setting{group: mutating, label: "no policy", path: webhook.PathMutate})
	add(mutating, "placement", webhook.PathMutate, placements)
	return slices.DeleteFunc(list, func(s setting) bool { return o.only != nil && !o.only.MatchString(s.String()) })
}

// costs are what reviews cost a server, in each round and by its name.
type costs struct {
	// cpu is in microseconds a review.
	cpu []map[string]float64
	// allocated is in bytes a review.
	allocated map[string]float64
}

// straight sends the review of a pod's creation straight to the servers.
func (s *stage) straight(ctx context.Context) (tables []report.Table, err error) {
	if s.options.reviews == 0 {
		return nil, nil
	}
	reviews, err := s.record(ctx)
	if err != nil {
		return nil, err
	}
	var servers []*server
	for _, name := range []string{constant, bare} {
		v, err := s.start(ctx, name)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop(context.WithoutCancel(ctx), v)) }()
		servers = append(servers, v)
	}
	installed, tollgate, err := s.installTollgate(ctx)
	if err != nil {
		return nil, err
	}
	servers = append(servers, tollgate)
	settings := s.options.settings()
	size := len(reviews[webhook.PathValidate])
	var measured []costs
	var growths []growth
	defer func() {
		if len(measured) > 0 {
			tables = append(tables, s.tabulate(size, settings, measured))
		}
		if len(growths) > 0 {
			tables = append(tables, tabulateGrowth(growths))
		}
	}()
	for _, setting := range settings {
		costs, err := s.under(ctx, servers, setting, reviews[setting.path], s.options.rounds)
		if err != nil {
			return nil, err
		}
		measured = append(measured, costs)
	}
	for _, by := range s.options.growing() {
		g, err := s.growth(ctx, servers, by, reviews[webhook.PathValidate])
		if err != nil {
			return nil, err
		}
		growths = append(growths, g)
	}
	if err := s.clearPolicies(ctx); err != nil {
		return nil, err
	}
	return nil, s.uninstallTollgate(ctx, installed, tollgate)
}

// under measures all servers under the policies of a setting.
func (s *stage) under(ctx context.Context, servers []*server, setting setting, body []byte, rounds int) (costs, error) {
	s.say("reviews: %s", setting)
	if err := s.apply(ctx, servers[len(servers)-1], setting, body); err != nil {
		return costs{}, fmt.Errorf("%s: %w", setting, err)
	}
	measured, err := s.compare(ctx, servers, setting, body, rounds)
	for again := 1; err != nil && again < tries && ctx.Err() == nil; again++ {
		s.say("measured anew, since on a busy machine a review can come too late: %v", err)
		measured, err = s.compare(ctx, servers, setting, body, rounds)
	}
	if err != nil {
		return costs{}, fmt.Errorf("%s: %w", setting, err)
	}
	return measured, nil
}

// apply puts the policies of a setting in the place of those that there are, and returns when Tollgate
// judges by them.
func (s *stage) apply(ctx context.Context, tollgate *server, setting setting, body []byte) error {
	if err := s.clearPolicies(ctx); err != nil {
		return err
	}
	if err := s.waitReady(ctx, 0); err != nil {
		return err
	}
	if err := s.create(ctx, setting.policies); err != nil {
		return err
	}
	if err := s.waitReady(ctx, len(setting.policies)); err != nil {
		return err
	}
	// Without policies every pod is allowed as it is, with them only that which they are for.
	probe, want := bytes.ReplaceAll(body, []byte(granted), []byte(refused)), saysAllowed
	switch {
	case setting.path == webhook.PathMutate && len(setting.policies) > 0:
		probe, want = body, saysPatch
	case len(setting.policies) > 0:
		want = saysRefused
	}
	err := until(ctx, "tollgate judges by the policies", func(ctx context.Context) error {
		return tollgate.review(ctx, setting.path, probe, 1, want)
	})
	if err != nil {
		return err
	}
	return rested(ctx, tollgate.pid)
}

// compare measures all servers in rounds, in small batches and in an order that turns.
func (s *stage) compare(ctx context.Context, servers []*server, setting setting, body []byte, rounds int) (costs, error) {
	review := func(v *server, n int) error {
		path, want := pathReview, []string{saysAllowed}
		if v.name == install.Name {
			path = setting.path
			if setting.path == webhook.PathMutate && len(setting.policies) > 0 {
				want = append(want, saysPatch)
			}
		}
		return v.review(ctx, path, body, n, want...)
	}
	c := costs{allocated: map[string]float64{}}
	for _, v := range servers {
		// Connections are opened, pools and caches filled, and all of the heap is used once: the heap grows with
		// the number of policies, and memory costs most when it is written for the first time.
		if err := review(v, warmUp*s.options.reviews); err != nil {
			return c, err
		}
	}
	order := slices.Clone(servers)
	for range rounds {
		used := map[string]time.Duration{}
		for done := 0; done < s.options.reviews; done += batch {
			n := min(batch, s.options.reviews-done)
			for _, v := range order {
				before, err := report.CPUTime(v.pid)
				if err != nil {
					return c, err
				}
				if err := review(v, n); err != nil {
					return c, err
				}
				after, err := report.CPUTime(v.pid)
				if err != nil {
					return c, err
				}
				used[v.name] += after - before
			}
			slices.Reverse(order)
		}
		round := map[string]float64{}
		for name, cpu := range used {
			round[name] = float64(cpu.Nanoseconds()) / 1e3 / float64(s.options.reviews)
		}
		c.cpu = append(c.cpu, round)
	}
	for _, v := range servers {
		var err error
		if c.allocated[v.name], err = s.allocatedPerReview(ctx, v, func(n int) error { return review(v, n) }); err != nil {
			return c, err
		}
	}
	return c, nil
}

// allocatedPerReview leaves out what the question itself allocates.
func (s *stage) allocatedPerReview(ctx context.Context, v *server, review func(n int) error) (float64, error) {
	var at [3]float64
	for i := range at {
		if i == len(at)-1 {
			if err := review(s.options.reviews); err != nil {
				return 0, err
			}
		}
		var err error
		if at[i], err = v.allocated(ctx); err != nil {
			return 0, err
		}
	}
	return (at[2] - at[1] - (at[1] - at[0])) / float64(s.options.reviews), nil
}

// tabulate has a row for each server, and for each setting of Tollgate.
func (s *stage) tabulate(size int, settings []setting, measured []costs) report.Table {
	t := report.Table{
		Title: fmt.Sprintf("One review of a pod's creation, %.1f KB, over HTTPS: CPU time of the process that answers", float64(size)/1e3),
		Explanation: fmt.Sprintf("%s of %d reviews on %d connections after %d more, batches of %d in turns; median (range) of rounds; "+
			"bare is a webhook of controller-runtime that decodes the pod", rounds(len(measured[0].cpu)), s.options.reviews, connections, warmUp*s.options.reviews, batch),
		Columns: []string{"us a review", "to bare", "to constant", "allocated to body"},
	}
	add := func(label, name string, of []costs) {
		var cpu, toBare, toConstant, allocated []float64
		for _, c := range of {
			for _, round := range c.cpu {
				cpu = append(cpu, round[name])
				toBare = append(toBare, round[name]/round[bare])
				toConstant = append(toConstant, round[name]/round[constant])
			}
			allocated = append(allocated, c.allocated[name]/float64(size))
		}
		t.Rows = append(t.Rows, report.Row{Label: label, Cells: []string{
			report.Spread(cpu, 0), report.Spread(toBare, 2), report.Spread(toConstant, 1), report.Spread(allocated, 2),
		}})
	}
	add("constant answer", constant, measured)
	add("bare", bare, measured)
	group := ""
	for i, setting := range settings[:len(measured)] {
		if setting.group != group {
			group = setting.group
			t.Rows = append(t.Rows, report.Row{Label: group})
		}
		add("  "+setting.label, install.Name, measured[i:i+1])
	}
	return t
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return strconv.Itoa(n) + " rounds"
}
