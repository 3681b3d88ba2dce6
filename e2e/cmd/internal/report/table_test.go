package report

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSpread(t *testing.T) {
	require.Equal(t, "1.00", Spread([]float64{1.001, 0.999}, 2))
	require.Equal(t, "2.5 (1.0 to 9.0)", Spread([]float64{9, 2, 3, 1}, 1))
	require.Equal(t, "2 (1 to 9)", Spread([]float64{9, 2, 1}, 0))
	require.Empty(t, Spread([]float64{math.NaN()}, 2))
}

func TestGeometricMean(t *testing.T) {
	require.Equal(t, "1.00", GeometricMean([]float64{0.5, 2}))
	require.Empty(t, GeometricMean([]float64{1, 0}))
}
