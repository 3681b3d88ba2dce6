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

// plainCost is what plain pods cost in one turn, for each pod.
type plainCost struct{ cpu, took time.Duration }

// plain measures what it costs plain pods that Tollgate's webhooks are registered. Tollgate runs all the
// time; its configurations are deleted and created again in between, so that turns follow each other within a
// second, where to install Tollgate takes several. The pods are created as dry runs.
func (s *stage) plain(ctx context.Context) (tables []report.Table, err error) {
	if s.options.plain == 0 {
		return nil, nil
	}
	plane, err := s.newPlane(true)
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
	var cpu, took []float64
	for round := range s.options.plain {
		var turns [2][]plainCost // without and with
		for _, with := range []bool{false, true, true, false} {
			cost, err := plane.plainTurn(ctx, with)
			if err != nil {
				return nil, err
			}
			if with {
				turns[1] = append(turns[1], cost)
			} else {
				turns[0] = append(turns[0], cost)
			}
		}
		ratio := func(of func(plainCost) time.Duration) float64 {
			sum := func(costs []plainCost) (all time.Duration) {
				for _, cost := range costs {
					all += of(cost)
				}
				return all
			}
			return float64(sum(turns[1])) / float64(sum(turns[0]))
		}
		cpu = append(cpu, ratio(func(c plainCost) time.Duration { return c.cpu }))
		took = append(took, ratio(func(c plainCost) time.Duration { return c.took }))
		s.say("plain pods, round %d: %.3f of the CPU time and %.3f of the time without webhooks", round+1, cpu[round], took[round])
	}
	return []report.Table{{
		Title: fmt.Sprintf("Plain pods with the webhooks of Tollgate and %d policies, to the same without webhooks", s.options.policies[0]),
		Explanation: fmt.Sprintf("dry runs, %d pods four times in a round, there and back; %d rounds; median (range) [95 %% interval]",
			plainTurn, s.options.plain),
		Columns: []string{"ratio"},
		Rows: []report.Row{
			{Label: "CPU of API server and Tollgate", Cells: []string{report.Ratio(cpu)}},
			{Label: "time until all are created", Cells: []string{report.Ratio(took)}},
		},
	}}, nil
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
	pids := []int{p.cp.RunningPIDs()[controlplane.APIServer], p.pid}
	if _, err := p.createPods(ctx, false, batch); err != nil {
		return plainCost{}, err
	}
	if err := rested(ctx, pids...); err != nil {
		return plainCost{}, err
	}
	used := func() (all time.Duration, err error) {
		for _, pid := range pids {
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
	if _, err := p.createPods(ctx, false, plainTurn); err != nil {
		return plainCost{}, err
	}
	took := time.Since(start)
	after, err := used()
	if err != nil {
		return plainCost{}, err
	}
	if !with {
		if err := restore(); err != nil {
			return plainCost{}, err
		}
	}
	return plainCost{cpu: (after - before) / plainTurn, took: took / plainTurn}, nil
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
