package eviction

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		breaker    Breaker
		live, gone int
		want       int
	}{
		"a number":                           {Breaker{MaxPods: new(int32(7))}, 1000, 0, 7},
		"a share":                            {Breaker{MaxPercent: new(int32(20))}, 80, 20, 20},
		"a share is rounded down":            {Breaker{MaxPercent: new(int32(20))}, 99, 0, 19},
		"a share is one at least":            {Breaker{MaxPercent: new(int32(1))}, 5, 0, 1},
		"a share of nothing":                 {Breaker{MaxPercent: new(int32(1))}, 0, 0, 1},
		"the smaller of both: the number":    {Breaker{MaxPods: new(int32(7)), MaxPercent: new(int32(20))}, 1000, 0, 7},
		"the smaller of both: the share":     {Breaker{MaxPods: new(int32(7)), MaxPercent: new(int32(20))}, 10, 0, 2},
		"no bound lets nobody go":            {Breaker{}, 1000, 0, 0},
		"a negative number lets nobody go":   {Breaker{MaxPods: new(int32(-5))}, 1000, 0, 0},
		"a whole cluster without overflow":   {Breaker{MaxPercent: new(int32(100))}, 1 << 40, 0, 1 << 40},
		"fewer than none is none":            {Breaker{MaxPercent: new(int32(50))}, -10, 0, 1},
		"the number where the share is more": {Breaker{MaxPods: new(int32(1)), MaxPercent: new(int32(100))}, 10, 0, 1},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, test.breaker.Limit(test.live, test.gone))
		})
	}
}
