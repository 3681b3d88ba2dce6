package sidebyside

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tollgate-dev/tollgate/e2e/controlplane"
)

func TestTollgateSurvivesWhatKubernetesDoesNot(t *testing.T) {
	phases := rows()
	all := slices.Concat(phases...)
	for _, r := range all {
		require.NotEqual(t, r.kubernetes, r.tollgate, "%s shows nothing", r.story)
	}
	t.Run("with", func(t *testing.T) {
		for _, evictor := range []controlplane.Eviction{controlplane.EvictionBuiltin, controlplane.EvictionTollgate} {
			t.Run(string(evictor), func(t *testing.T) {
				t.Parallel()
				p := startPlane(t, evictor)
				played := playAll(t, p, phases)
				for i, r := range all {
					t.Run(r.fault+" "+r.upstream+" "+r.story, func(t *testing.T) {
						want := r.kubernetes
						if evictor == controlplane.EvictionTollgate {
							want = r.tollgate
						}
						require.Equal(t, want, played[i])
					})
				}
				if evictor == controlplane.EvictionBuiltin {
					t.Run("J10 both evict beside each other", func(t *testing.T) { testBoth(t, p) })
				}
			})
		}
	})
	text := table(all)
	t.Log("\n" + text)
	if *update && !t.Failed() {
		require.NoError(t, publish(text))
	}
}

// playAll plays all stories to one evictor, those of a phase at once.
func playAll(t *testing.T, p *plane, phases [][]row) []string {
	t.Helper()
	var outcomes []string
	for _, phase := range phases {
		var mu sync.Mutex
		played := make([]string, len(phase))
		group, ctx := errgroup.WithContext(t.Context())
		for i, r := range phase {
			number := len(outcomes) + i
			group.Go(func() error {
				outcome, err := p.play(ctx, number, r)
				mu.Lock()
				defer mu.Unlock()
				played[i] = outcome
				return err
			})
		}
		require.NoError(t, group.Wait())
		outcomes = append(outcomes, played...)
	}
	return outcomes
}

// play plays one story, and returns what has come of it.
func (p *plane) play(ctx context.Context, number int, r row) (string, error) {
	s := p.newStage(ctx, number)
	outcome := r.play(s)
	if s.err != nil {
		return "", fmt.Errorf("%s: %w", r.story, s.err)
	}
	return outcome, nil
}
