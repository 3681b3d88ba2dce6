package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/e2e/cmd/internal/report"
	"github.com/tollgate-dev/tollgate/e2e/controlplane"
	"github.com/tollgate-dev/tollgate/e2e/install"
)

// plainTurn is how many plain pods are created with and without the webhooks at a time.
const plainTurn = 500

// plainCost is what plain pods cost in one turn: the CPU time of the API server, that of Tollgate, and
// the time until all are created.
type plainCost struct{ server, tollgate, took time.Duration }

// plain measures what it costs plain pods that Tollgate's webhooks are registered. Tollgate runs all the
// time; its configurations are deleted and created again in between, so that turns follow each other within
// seconds, where to install Tollgate takes longer.
func (s *stage) plain(ctx context.Context) (tables []report.Table, err error) {
	if max(s.options.plain, s.options.beside) == 0 {
		return nil, nil
	}
	plane, err := s.newPlane(s.options.dryRun)
	if err != nil {
		return nil, err
	}
	plane.policies = guards(s.options.policies[0], func(i int) bool { return i == 0 }, v1alpha1.TolerationGrant{Namespaces: []string{granted}})
	if err := s.create(ctx, plane.policies); err != nil {
		return nil, err
	}
	if err := plane.startTollgate(ctx); err != nil {
		return nil, err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, plane.off(ctx), s.clearPolicies(ctx))
	}()
	registered, err := s.plainRounds(func(with bool) (plainCost, error) { return plane.plainTurn(ctx, with) })
	if err != nil {
		return nil, err
	}
	apart, err := s.plainApart(ctx, plane)
	if err != nil {
		return nil, err
	}
	if len(registered.cpu) > 0 {
		tables = append(tables, plainTable(
			fmt.Sprintf("Plain pods with the webhooks of Tollgate and %d policies, to the same without webhooks", s.options.policies[0]),
			fmt.Sprintf("%s%d pods four times in a round, there and back; %d rounds; median (range) [95 %% interval]", s.kind(), plainTurn, s.options.plain),
			[]string{"ratio"}, registered,
		))
	}
	return append(tables, apart...), nil
}

// kind says what kind of creations are measured.
func (s *stage) kind() string {
	if s.options.dryRun {
		return "dry runs, "
	}
	return ""
}

// plainRatios are what plain pods cost in one way to the same in another, in each round.
type plainRatios struct{ server, cpu, took []float64 }

// plainTable returns a table with a column of ratios for each heading.
func plainTable(title, explanation string, columns []string, ratios ...*plainRatios) report.Table {
	rows := []report.Row{{Label: "CPU of the API server"}, {Label: "CPU of API server and Tollgate"}, {Label: "time until all are created"}}
	for _, r := range ratios {
		for i, values := range [][]float64{r.server, r.cpu, r.took} {
			rows[i].Cells = append(rows[i].Cells, report.Ratio(values))
		}
	}
	return report.Table{Title: title, Explanation: explanation, Columns: columns, Rows: rows}
}

// plainRounds measures turns, there and back.
func (s *stage) plainRounds(turn func(with bool) (plainCost, error)) (*plainRatios, error) {
	var ratios plainRatios
	for round := range s.options.plain {
		var costs [2]plainCost // without and with
		for _, with := range []bool{false, true, true, false} {
			cost, err := turn(with)
			if err != nil {
				return nil, err
			}
			if with {
				costs[1].add(cost)
			} else {
				costs[0].add(cost)
			}
		}
		ratios.enter(costs)
		s.say("plain pods, round %d: %.3f of the CPU time and %.3f of the time without webhooks", round+1, ratios.cpu[round], ratios.took[round])
	}
	return &ratios, nil
}

func (c *plainCost) add(other plainCost) {
	c.server += other.server
	c.tollgate += other.tollgate
	c.took += other.took
}

// enter adds the ratios of a round.
func (r *plainRatios) enter(costs [2]plainCost) {
	ratio := func(of func(c *plainCost) time.Duration) float64 {
		return float64(of(&costs[1])) / float64(of(&costs[0]))
	}
	r.server = append(r.server, ratio(func(c *plainCost) time.Duration { return c.server }))
	r.cpu = append(r.cpu, ratio(func(c *plainCost) time.Duration { return c.server + c.tollgate }))
	r.took = append(r.took, ratio(func(c *plainCost) time.Duration { return c.took }))
}

// to returns the ratios of ratios, round by round.
func (r *plainRatios) to(other *plainRatios) *plainRatios {
	divide := func(of, by []float64) []float64 {
		out := make([]float64, len(of))
		for i := range of {
			out[i] = of[i] / by[i]
		}
		return out
	}
	return &plainRatios{server: divide(r.server, other.server), cpu: divide(r.cpu, other.cpu), took: divide(r.took, other.took)}
}

// leaf is how many pods are created in a namespace before it is the turn of the other, and quads how often
// that is done there and back, with the webhooks and without.
const leaf, quads = 24, 20

// plainApart compares plain pods in a namespace that the webhooks cover to the same in one that they leave
// out. Nothing has to be registered anew for that, so turns of 30 ms can follow each other, between which
// the machine does not change. Namespaces may differ in more than the webhooks, so the same is compared
// without webhooks.
func (s *stage) plainApart(ctx context.Context, plane *plane) ([]report.Table, error) {
	if s.options.beside == 0 {
		return nil, nil
	}
	var with, without plainRatios
	for round := range s.options.beside {
		if err := plane.spares(ctx, true); err != nil {
			return nil, err
		}
		if err := plane.enterApart(ctx, &with); err != nil {
			return nil, err
		}
		restore, err := plane.unregister(ctx)
		if err != nil {
			return nil, err
		}
		if err := plane.spares(ctx, false); err != nil {
			return nil, errors.Join(err, restore())
		}
		if err := errors.Join(plane.enterApart(ctx, &without), restore()); err != nil {
			return nil, err
		}
		s.say("plain pods beside a namespace that is left out, round %d: %.3f of the CPU time there with the webhooks, %.3f without",
			round+1, with.cpu[round], without.cpu[round])
	}
	return []report.Table{plainTable(
		fmt.Sprintf("Plain pods with the webhooks of Tollgate and %d policies, to plain pods in a namespace that the webhooks leave out", s.options.policies[0]),
		fmt.Sprintf("%s%d pods in the one namespace, then in the other, there and back %d times in a round; %d rounds; median (range) [95 %% interval]",
			s.kind(), leaf, quads, s.options.beside),
		[]string{"with the webhooks", "without webhooks", "the one to the other"}, &with, &without, with.to(&without),
	)}, nil
}

// spares waits until the webhooks refuse a guarded pod where they judge and nowhere else, or are not called.
func (p *plane) spares(ctx context.Context, registered bool) error {
	for namespace, refuses := range map[string]bool{refused: registered, spared: false} {
		if err := p.refuses(ctx, namespace, refuses); err != nil {
			return err
		}
	}
	return nil
}

// enterApart creates plain pods in both namespaces by turns, and enters the ratios.
func (p *plane) enterApart(ctx context.Context, ratios *plainRatios) error {
	namespaces := []string{spared, granted}
	for _, namespace := range namespaces {
		if _, err := p.createPods(ctx, namespace, false, batch); err != nil {
			return err
		}
	}
	var costs [2]plainCost
	for range quads {
		for _, i := range []int{0, 1, 1, 0} {
			cost, err := p.plainCost(ctx, namespaces[i], leaf)
			if err != nil {
				return err
			}
			costs[i].add(cost)
		}
	}
	ratios.enter(costs)
	if err := errors.Join(p.deletePods(ctx, granted), p.deletePods(ctx, spared)); err != nil {
		return err
	}
	return rested(ctx, p.pids()...)
}

// refuses waits until a guarded pod that nothing is granted to is refused in a namespace, or is not.
func (p *plane) refuses(ctx context.Context, namespace string, want bool) error {
	return until(ctx, "the webhooks are called or not", func(ctx context.Context) error {
		_, err := p.clients[0].CoreV1().Pods(namespace).Create(ctx, pod(namespace, true), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if want != apierrors.IsForbidden(err) {
			return fmt.Errorf("a guarded pod that nothing is granted to: %w", errors.Join(err, errors.New("not as it should be")))
		}
		return nil
	})
}

// plainTurn creates plain pods with or without the webhooks.
func (p *plane) plainTurn(ctx context.Context, with bool) (plainCost, error) {
	restore, err := p.unregister(ctx)
	if err != nil {
		return plainCost{}, err
	}
	if with {
		if err := restore(); err != nil {
			return plainCost{}, err
		}
	}
	if err := p.refuses(ctx, refused, with); err != nil {
		return plainCost{}, err
	}
	if _, err := p.createPods(ctx, granted, false, batch); err != nil {
		return plainCost{}, err
	}
	if err := rested(ctx, p.pids()...); err != nil {
		return plainCost{}, err
	}
	cost, err := p.plainCost(ctx, granted, plainTurn)
	if err != nil {
		return plainCost{}, err
	}
	if err := p.deletePods(ctx, granted); err != nil {
		return plainCost{}, err
	}
	if !with {
		if err := restore(); err != nil {
			return plainCost{}, err
		}
	}
	return cost, nil
}

// pids are those of the API server and of Tollgate.
func (p *plane) pids() []int { return []int{p.cp.RunningPIDs()[controlplane.APIServer], p.pid} }

// plainCost creates plain pods in a namespace, and returns what that costs.
func (p *plane) plainCost(ctx context.Context, namespace string, pods int) (plainCost, error) {
	before, err := p.used()
	if err != nil {
		return plainCost{}, err
	}
	start := time.Now()
	if _, err := p.createPods(ctx, namespace, false, pods); err != nil {
		return plainCost{}, err
	}
	took := time.Since(start)
	after, err := p.used()
	return plainCost{server: after.server - before.server, tollgate: after.tollgate - before.tollgate, took: took}, err
}

// used returns the CPU time that the processes have used since they started.
func (p *plane) used() (all plainCost, err error) {
	for i, of := range []*time.Duration{&all.server, &all.tollgate} {
		if *of, err = report.CPUTime(p.pids()[i]); err != nil {
			return all, err
		}
	}
	return all, nil
}

// unregister deletes the webhook configurations of Tollgate; restore creates them as they were.
func (p *plane) unregister(ctx context.Context) (restore func() error, err error) {
	found := []client.Object{
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.Name}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.Name}},
	}
	for _, configuration := range found {
		if err := p.client.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
			return nil, fmt.Errorf("read webhooks: %w", err)
		}
	}
	restore = func() error {
		for _, configuration := range found {
			configuration.SetResourceVersion("")
			configuration.SetUID("")
			if err := p.client.Create(ctx, configuration); err != nil {
				return fmt.Errorf("register webhooks: %w", err)
			}
		}
		return nil
	}
	return restore, p.remove(ctx, found)
}
