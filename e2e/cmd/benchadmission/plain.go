package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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

// plainCost is what plain pods cost in one turn.
type plainCost struct{ cpu, took time.Duration }

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
		tables = append(tables, registered.table(
			fmt.Sprintf("Plain pods with the webhooks of Tollgate and %d policies, to the same without webhooks", s.options.policies[0]),
			fmt.Sprintf("%s%d pods four times in a round, there and back; %d rounds; median (range) [95 %% interval]", s.kind(), plainTurn, s.options.plain),
		))
	}
	if len(apart.cpu) > 0 {
		tables = append(tables, apart.table(
			fmt.Sprintf("Plain pods with the webhooks of Tollgate and %d policies, to plain pods in a namespace that the webhooks leave out", s.options.policies[0]),
			fmt.Sprintf("%s%d pods in the one namespace, then in the other, there and back %d times in a round; %d rounds; median (range) [95 %% interval]",
				s.kind(), leaf, quads, s.options.beside),
		))
	}
	return tables, nil
}

// kind says what kind of creations are measured.
func (s *stage) kind() string {
	if s.options.dryRun {
		return "dry runs, "
	}
	return ""
}

// plainRatios are what plain pods cost with the webhooks to the same without, in each round.
type plainRatios struct{ cpu, took []float64 }

func (r *plainRatios) table(title, explanation string) report.Table {
	return report.Table{
		Title: title, Explanation: explanation, Columns: []string{"ratio"},
		Rows: []report.Row{
			{Label: "CPU of API server and Tollgate", Cells: []string{report.Ratio(r.cpu)}},
			{Label: "time until all are created", Cells: []string{report.Ratio(r.took)}},
		},
	}
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
	c.cpu += other.cpu
	c.took += other.took
}

// enter adds the ratios of a round.
func (r *plainRatios) enter(costs [2]plainCost) {
	r.cpu = append(r.cpu, float64(costs[1].cpu)/float64(costs[0].cpu))
	r.took = append(r.took, float64(costs[1].took)/float64(costs[0].took))
}

const (
	// leftOut is a namespace that the webhooks leave out.
	leftOut = metav1.NamespaceSystem
	// leaf is how many pods are created in a namespace before it is the turn of the other, and quads how
	// often that is done there and back in a round.
	leaf, quads = 24, 40
)

// plainApart compares plain pods in a namespace that the webhooks cover to the same in one that they leave
// out. Nothing has to be registered anew for that, so turns of 30 ms can follow each other, between which
// the machine does not change.
func (s *stage) plainApart(ctx context.Context, plane *plane) (*plainRatios, error) {
	if s.options.beside == 0 {
		return &plainRatios{}, nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: leftOut, Name: leftOut}}
	if err := plane.client.Create(ctx, account); err != nil {
		return nil, fmt.Errorf("create service account: %w", err)
	}
	if _, err := plane.clients[0].CoreV1().Pods(leftOut).Create(ctx, pod(leftOut, true), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return nil, fmt.Errorf("a guarded pod where nothing is judged: %w", err)
	}
	var ratios plainRatios
	for round := range s.options.beside {
		var costs [2]plainCost
		for range quads {
			for _, with := range []int{0, 1, 1, 0} {
				cost, err := plane.plainCost(ctx, []string{leftOut, granted}[with], leaf)
				if err != nil {
					return nil, err
				}
				costs[with].add(cost)
			}
		}
		if err := errors.Join(plane.deletePods(ctx, granted), plane.deletePods(ctx, leftOut)); err != nil {
			return nil, err
		}
		if err := rested(ctx, plane.pids()...); err != nil {
			return nil, err
		}
		ratios.enter(costs)
		s.say("plain pods beside a namespace that is left out, round %d: %.3f of the CPU time and %.3f of the time there",
			round+1, ratios.cpu[round], ratios.took[round])
	}
	return &ratios, nil
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
	if err := until(ctx, "the webhooks are called or not", func(ctx context.Context) error {
		_, err := p.clients[0].CoreV1().Pods(refused).Create(ctx, pod(refused, true), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if with != apierrors.IsForbidden(err) {
			return fmt.Errorf("a guarded pod that nothing is granted to: %w", errors.Join(err, errors.New("not as it should be")))
		}
		return nil
	}); err != nil {
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
	used := func() (all time.Duration, err error) {
		for _, pid := range p.pids() {
			one, err := report.CPUTime(pid)
			if err != nil {
				return 0, err
			}
			all += one
		}
		return all, nil
	}
	before, err := used()
	if err != nil {
		return plainCost{}, err
	}
	start := time.Now()
	if _, err := p.createPods(ctx, namespace, false, pods); err != nil {
		return plainCost{}, err
	}
	took := time.Since(start)
	after, err := used()
	return plainCost{cpu: after - before, took: took}, err
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
