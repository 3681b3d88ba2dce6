package cel

import (
	"math"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/stretchr/testify/require"
)

func TestThePriceIsThatOfTheResultD01(t *testing.T) {
	t.Parallel()
	text := func(n int) ref.Val { return types.String(strings.Repeat("a", n)) }
	list := types.DefaultTypeAdapter.NativeToValue([]string{"a", "b", "c"})
	require.Greater(t, replacePrice([]ref.Val{text(100), text(1), text(1 << 20)}), costPerExpression)
	require.Less(t, replacePrice([]ref.Val{text(100), text(1), text(1 << 20), types.Int(1)}), costPerExpression)
	require.Greater(t, joinPrice([]ref.Val{list, text(1 << 20)}), costPerExpression)
	require.Greater(t, splitPrice([]ref.Val{text(30_000), text(0)}), costPerExpression)
	require.Less(t, splitPrice([]ref.Val{text(30_000), types.String("b")}), costPerExpression)
	require.Equal(t, uint64(1), rangePrice([]ref.Val{types.Int(-5)}))
	require.Equal(t, uint64(6), times(2, 3))
	require.Greater(t, 1+times(1<<62, 1<<16), costPerExpression, "a product that does not fit is not small")
	require.Greater(t, 1+times(math.MaxUint64, 1), costPerExpression)
}

func TestAQuantityHasAHundredDigitsD01(t *testing.T) {
	t.Parallel()
	for text, small := range map[string]bool{
		"1e100": true, "1E-100": true, "12Ei": true, "1.5": true, "e": true, strings.Repeat("1", 64): true,
		"1e101": false, "1E-101": false, "1e+101": false, "1e-99999999999999999999": false, strings.Repeat("1", 65): false,
	} {
		require.Equal(t, small, quantityPrice([]ref.Val{types.String(text)}) <= costPerExpression, text)
	}
}

func TestAPatternWeighsWhatItCompilesToD01(t *testing.T) {
	t.Parallel()
	require.Greater(t, stepsOf("(x{100}){10}"), 1000)
	require.GreaterOrEqual(t, stepsOf("abc"), 3)
	require.Equal(t, 1, stepsOf("("), "what makes no sense is not matched")
	args := []ref.Val{types.String(strings.Repeat("a", 1000)), types.String("a"), types.Int(5)}
	found := patternPrice("find", "1", args)
	require.Greater(t, patternPrice("findAll", "1", args[:2]), found+1000)
	require.Equal(t, found+5, patternPrice("findAll", "1", args))
}
