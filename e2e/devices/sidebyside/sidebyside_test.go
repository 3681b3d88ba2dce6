package sidebyside

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestTollgateEvictsAsKubernetesDoes(t *testing.T) {
	all := scenarios()
	var mu sync.Mutex
	outcomes := map[controlplane.Eviction][]outcome{}
	t.Run("with", func(t *testing.T) {
		for _, evictor := range []controlplane.Eviction{controlplane.EvictionBuiltin, controlplane.EvictionTollgate} {
			t.Run(string(evictor), func(t *testing.T) {
				t.Parallel()
				played := playAll(t, evictor, all)
				for i, s := range all {
					t.Run(s.name+" "+s.rules, func(t *testing.T) {
						require.Equal(t, s.expected(evictor == controlplane.EvictionTollgate), played[i])
					})
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[evictor] = played
			})
		}
	})
	if len(outcomes) < 2 {
		return // only one of them was asked for
	}
	text := table(all, outcomes[controlplane.EvictionBuiltin], outcomes[controlplane.EvictionTollgate])
	t.Log("\n" + text)
	if *update && !t.Failed() {
		require.NoError(t, publish(text))
	}
}

// playAll plays all scenarios to one evictor, at once as far as they can be.
func playAll(t *testing.T, evictor controlplane.Eviction, all []scenario) []outcome {
	t.Helper()
	p := startPlane(t, evictor)
	outcomes := make([]outcome, len(all))
	for _, alone := range []bool{false, true} {
		group, ctx := errgroup.WithContext(t.Context())
		for i, s := range all {
			if s.alone != alone {
				continue
			}
			group.Go(func() (err error) {
				outcomes[i], err = p.play(ctx, i, s, s.expected(evictor == controlplane.EvictionTollgate))
				if err != nil {
					err = fmt.Errorf("%s: %w", s.name, err)
				}
				return err
			})
		}
		require.NoError(t, group.Wait())
	}
	return outcomes
}

// play plays a scenario and returns what came of it. On a busy machine the conditions of
// rules are further behind, so what is expected may come a while after the end.
func (p *plane) play(ctx context.Context, number int, s scenario, want outcome) (outcome, error) {
	stage := newStage(ctx, p.client, number)
	s.play(stage)
	until := end
	if s.alone {
		until = endAlone
	}
	if stage.err == nil && time.Since(stage.began) > until-period/2 {
		stage.err = fmt.Errorf("it took %s to play", time.Since(stage.began))
	}
	stage.after(until)
	if stage.err != nil {
		return nil, stage.err
	}
	for late := until; ; {
		came, err := p.outcome(ctx, stage)
		if late += time.Second; err != nil || maps.Equal(came, want) || late > until+patience {
			return came, err
		}
		if stage.after(late); stage.err != nil {
			return nil, stage.err
		}
	}
}

func (p *plane) outcome(ctx context.Context, s *stage) (outcome, error) {
	deletions, err := p.deletions()
	if err != nil {
		return nil, err
	}
	o := outcome{}
	for _, pod := range s.pods {
		name := types.NamespacedName{Namespace: s.namespace, Name: pod}
		o[pod] = fate(s.began, deletions[name], p.marksOf(name))
	}
	for _, name := range s.rules {
		rule, err := s.client.ResourceV1().DeviceTaintRules().Get(ctx, s.ruleName(name), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			o["rule "+name] = "deleted"
		case err != nil:
			return nil, fmt.Errorf("get rule: %w", err)
		default:
			o["rule "+name] = verdict(rule)
		}
	}
	return o, nil
}
