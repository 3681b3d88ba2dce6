package report

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheIntervalOfRatiosIsThatOfTheirLogarithms(t *testing.T) {
	t.Parallel()
	// The logarithms are -1, 0 and 1: their mean is 0, their standard error 1/√3.
	low, high, ok := Interval([]float64{math.Exp(-1), 1, math.E})
	require.True(t, ok)
	require.InDelta(t, math.Exp(4.303/math.Sqrt(3)), high, 1e-9)
	require.InDelta(t, 1, low*high, 1e-9)

	low, high, ok = Interval(slices.Repeat([]float64{1.5}, 40))
	require.True(t, ok, "more rounds than there are quantiles")
	require.InDelta(t, 1.5, low, 1e-9)
	require.InDelta(t, 1.5, high, 1e-9)

	_, _, ok = Interval([]float64{1, 2})
	require.False(t, ok, "two rounds have no interval")
}

func TestARatioHasItsRangeAndItsInterval(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0.50", Ratio([]float64{0.5}))
	require.Equal(t, "0.50 [0.50 to 0.50]", Ratio([]float64{0.5, 0.5, 0.5}))
	require.Regexp(t, `^0\.50 \(0\.40 to 0\.60\) \[0\.\d\d to 0\.\d\d\]$`, Ratio([]float64{0.4, 0.5, 0.6}))
}
