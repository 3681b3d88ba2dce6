package cel

import (
	"math"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel/library"
)

// costPerExpression is what one expression may cost, in the units of Kubernetes: a
// field, a comparison, or ten bytes of text are one. It is enough for some 5,000 steps
// of a loop. Upstream allows a million, for about 100 ms, but the interpreter's own
// count takes time with the square of the steps: a loop at that cost runs for half a
// minute.
const costPerExpression uint64 = 25_000

// costPerReview is what all expressions of a review together may cost by taken:
// about 100 ms.
const costPerReview uint64 = 1_000_000

// costOfCheck is the cost of asking the authorizer, which upstream counts so that two
// questions fit into an expression. Here answers are kept for a while, and the
// number of questions under way is limited where they are asked.
const costOfCheck uint64 = 500

// units is a number of things of which each costs one.
func units(n int) uint64 { return uint64(max(n, 0)) }

// perByte is the cost of reading one byte of text, where it is counted here.
const perByte = 0.01

const (
	tooCostly = "costs more than an expression may: look at less, or at fewer elements"
	exhausted = "the expressions of this request together cost more than they may"
)

// squared makes the cost at which half of the time goes into counting it.
const squared = 2_000

// taken is what an evaluation takes of the budget of its review.
func taken(cost uint64) uint64 { return cost + cost*cost/squared }

// limits are the costs at which an evaluation may end: the usual one, and those for
// when a review has little left. A plan has its limit built in, so they are few.
var limits = [...]uint64{costPerExpression, 5_000, 1_000}

// affordable returns which limit the next evaluation has: the highest that does not
// take more than what is left, if there is one.
func (r *Review) affordable() (level int, ok bool) {
	left := costPerReview - min(r.spent, costPerReview)
	for level, limit := range limits {
		if taken(limit) <= left {
			return level, true
		}
	}
	return 0, false
}

// charge counts what an evaluation cost, which is all it was allowed if nobody knows.
func (r *Review) charge(details *cel.EvalDetails, limit uint64) {
	cost := details.ActualCost()
	if cost == nil {
		cost = &limit
	}
	r.spent += taken(min(*cost, limit))
}

// costs is the cost of calls: as upstream counts it, where that is in proportion to
// the time a call takes. Upstream compares two large objects at the price of two
// numbers, and takes the size of a text by copying it.
type costs struct{ upstream library.CostEstimator }

// CallCost implements interpreter.ActualCostEstimator. Nil leaves it to the
// interpreter, which knows the rest of the standard functions.
func (c *costs) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	if price, ok := prices[function]; ok {
		return new(price(args))
	}
	if function == readText {
		return new(textCost(args[0]))
	}
	if name, ok := strings.CutPrefix(function, boundedPrefix); ok {
		return new(patternPrice(name, overload, args))
	}
	switch function {
	case "check":
		return new(costOfCheck)
	case operators.Equals, operators.NotEquals:
		return new(comparison(args))
	case operators.In, operators.OldIn:
		return new(membership(args))
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return new(1 + min(textCost(args[0]), textCost(args[1])))
	}
	if cost := c.upstream.CallCost(function, overload, args, result); cost != nil {
		return cost
	}
	if _, ok := constant[function]; ok {
		return nil
	}
	cost := uint64(1)
	for _, arg := range args {
		cost += textCost(arg)
	}
	return &cost
}

// constant are the functions whose cost the interpreter knows, or for which the size
// of the text they are given does not matter.
var constant = map[string]struct{}{
	operators.Add: {}, operators.Index: {}, operators.OptIndex: {}, operators.OptSelect: {},
	operators.LogicalNot: {}, operators.NotStrictlyFalse: {},
	"startsWith": {}, "endsWith": {}, "contains": {}, "bytes": {}, "dyn": {}, "type": {},
}

// comparison is the cost of comparing two values: of reading the smaller one.
func comparison(args []ref.Val) uint64 {
	if len(args) != 2 {
		return 1
	}
	least := measure(args[0], 2*costPerExpression)
	return min(least, measure(args[1], least))
}

// membership is the cost of looking for a value in a list; in a map it is found at
// once.
func membership(args []ref.Val) uint64 {
	if len(args) != 2 {
		return 1
	}
	list, ok := args[1].(traits.Lister)
	if !ok {
		return 1 + textCost(args[0])
	}
	length, ok := list.Size().(types.Int)
	if !ok {
		return 1
	}
	switch args[0].(type) {
	case traits.Mapper, traits.Lister:
		return measure(list, 2*costPerExpression)
	default:
		return 1 + times(units(int(length)), 1+textCost(args[0]))
	}
}

// textCost is the cost of reading a value, if it is text.
func textCost(value ref.Val) uint64 {
	switch v := value.(type) {
	case types.String:
		return perBytes(len(v))
	case types.Bytes:
		return perBytes(len(v))
	default:
		return 0
	}
}

func perBytes(n int) uint64 { return uint64(math.Ceil(float64(n) * perByte)) }

// measure returns the cost of reading all of a value, up to a limit.
func measure(value ref.Val, limit uint64) uint64 {
	m := meter{limit: limit}
	m.val(value)
	return min(m.total, limit)
}

type meter struct{ total, limit uint64 }

// val reads a value. What was decoded from JSON is read as it is: to make CEL values
// of its elements takes longer than comparing them.
func (m *meter) val(value ref.Val) {
	m.total++
	switch v := value.(type) {
	case types.String:
		m.total += perBytes(len(v))
	case types.Bytes:
		m.total += perBytes(len(v))
	case *types.Optional:
		if v.HasValue() {
			m.val(v.GetValue())
		}
	case traits.Lister, traits.Mapper:
		if !m.native(value.Value()) {
			m.elements(v.(traits.Iterable), value)
		}
	}
}

func (m *meter) elements(of traits.Iterable, value ref.Val) {
	mapper, isMap := value.(traits.Mapper)
	for it := of.Iterator(); it.HasNext() == types.True && m.total < m.limit; {
		element := it.Next()
		m.val(element)
		if isMap {
			m.val(mapper.Get(element))
		}
	}
}

// native reads a value that JSON decodes to, and reports whether it is one.
func (m *meter) native(value any) bool {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			if m.total >= m.limit {
				break
			}
			m.total += 1 + perBytes(len(key))
			m.native(element)
		}
	case []any:
		for _, element := range v {
			if m.total >= m.limit {
				break
			}
			m.total++
			m.native(element)
		}
	case string:
		m.total += perBytes(len(v))
	case nil, bool, int64, float64:
	default:
		return false
	}
	return true
}
