package cel

import (
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/cel/library"
)

// costPerExpression is the cost that one expression may have, in the units of Kubernetes: a
// field, a comparison, or ten bytes of text are one. It is enough for some 5,000 steps
// of a loop. Upstream allows a million, for about 100 ms, but the interpreter's own
// count takes time with the square of the steps: a loop at that cost runs for half a
// minute.
const costPerExpression uint64 = 25_000

// costPerReview is the cost that all expressions of a review may have together, as counted by
// taken: about 100 ms.
const costPerReview uint64 = 1_000_000

// costOfCheck is the cost of a check of the authorizer, which upstream counts so that two
// checks fit into an expression. Here answers are kept for a while, and the authorizer limits the
// number of checks under way.
const costOfCheck uint64 = 500

// perByte is the cost of reading one byte of text, where it is counted here.
const perByte = 0.01

// unaffordable is the cost of a call that no expression may make.
const unaffordable = 2 * costPerExpression

// costAtOnce is the cost that expressions of a review may have together, as counted by taken, before
// all that they evaluate has to wait for a turn: about 1 ms.
const costAtOnce uint64 = 10_000

const (
	tooCostly = "costs more than an expression may: look at less, or at fewer elements"
	exhausted = "the expressions of this request together cost more than they may"
)

// errExhausted is the failure of an expression that its review cannot pay for.
var errExhausted = &FailedError{exhausted}

// squared is the cost at which half of the time goes into counting it.
const squared = 2_000

// taken is the part of the budget of its review that an evaluation takes.
func taken(cost uint64) uint64 { return cost + cost*cost/squared }

// limits are the costs at which an evaluation may end: the usual one, and those for
// when a review has little left. A plan has its limit built in, so they are few.
var limits = [...]uint64{costPerExpression, 5_000, 1_000}

// little is the level of an evaluation that needs no turn: it takes 0.15 ms at most.
const little = len(limits) - 1

// affordable returns the limit of the next evaluation: the highest that does not
// take more than the rest of the budget, if there is one.
func (r *Review) affordable() (level int, ok bool) {
	for level, limit := range limits {
		if r.spent+taken(limit) <= costPerReview {
			return level, true
		}
	}
	return 0, false
}

// prices are the costs of the functions that can take more time or memory than their
// arguments have bytes: a text in which each letter is replaced by a long one, a list
// that is flattened and holds another many times. The interpreter counts a call when
// it has been made, which for these is too late, so they are counted before.
var prices = map[string]func(args []ref.Val) uint64{
	"replace":               replacePrice,
	"join":                  joinPrice,
	"split":                 splitPrice,
	"format":                contentPrice,
	"flatten":               contentPrice,
	"distinct":              pairsPrice,
	"sets.contains":         pairsPrice,
	"sets.equivalent":       pairsPrice,
	"sets.intersects":       pairsPrice,
	"sort":                  sortPrice,
	"@sortByAssociatedKeys": sortPrice,
	"lists.range":           rangePrice,
	"slice":                 slicePrice,
	"reverse":               contentPrice,
	"indexOf":               contentPrice,
	"lastIndexOf":           contentPrice,
	"includes":              contentPrice,
	"isSorted":              contentPrice,
	"sum":                   contentPrice,
	"min":                   contentPrice,
	"max":                   contentPrice,
	"quantity":              quantityPrice,
	"isQuantity":            quantityPrice,
	operators.In:            membershipPrice,
	operators.OldIn:         membershipPrice,
	operators.Equals:        comparisonPrice,
	operators.NotEquals:     comparisonPrice,
	readText:                func(args []ref.Val) uint64 { return textPrice(args[0]) },
}

// constantPrice are the functions whose cost the interpreter knows, or for which the size
// of their texts does not matter.
var constantPrice = sets.New(
	operators.Add, operators.Index, operators.OptIndex, operators.OptSelect, operators.LogicalNot, operators.NotStrictlyFalse,
	"startsWith", "endsWith", "contains", "bytes", "dyn", "type",
)

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
	if name, ok := strings.CutPrefix(function, boundedPrefix); ok {
		return new(patternPrice(name, overload, args))
	}
	switch function {
	case "check":
		return new(costOfCheck)
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return new(1 + min(textPrice(args[0]), textPrice(args[1])))
	}
	if cost := c.upstream.CallCost(function, overload, args, result); cost != nil {
		return cost
	}
	if constantPrice.Has(function) {
		return nil
	}
	cost := uint64(1)
	for _, arg := range args {
		cost += textPrice(arg)
	}
	return &cost
}

func replacePrice(args []ref.Val) uint64 {
	text, with := textOf(args, 0), textOf(args, 2)
	count := strings.Count(text, textOf(args, 1))
	if most, ok := intOf(args, 3); ok && most >= 0 {
		count = min(count, most)
	}
	return 1 + perBytes(len(text)) + perBytes(len(text)+count*len(with))
}

func joinPrice(args []ref.Val) uint64 {
	return 1 + contentPrice(args[:1]) + times(sizeOf(args[0]), perBytes(len(textOf(args, 1))))
}

func splitPrice(args []ref.Val) uint64 {
	text := textOf(args, 0)
	return 1 + perBytes(len(text)) + units(strings.Count(text, textOf(args, 1)))
}

// contentPrice is for functions that read, or repeat, all that their arguments hold.
func contentPrice(args []ref.Val) uint64 {
	var cost uint64
	for _, arg := range args {
		cost += contentOf(arg, unaffordable)
	}
	return cost
}

// pairsPrice is for functions that compare each element of a list with each of another, or of
// the same.
func pairsPrice(args []ref.Val) uint64 {
	return 1 + times(sizeOf(args[0]), contentOf(args[len(args)-1], costPerExpression))
}

func sortPrice(args []ref.Val) uint64 {
	return 1 + contentPrice(args)*units(bits.Len64(sizeOf(args[0])))
}

func rangePrice(args []ref.Val) uint64 {
	length, _ := intOf(args, 0)
	return 1 + units(length)
}

func slicePrice(args []ref.Val) uint64 {
	from, _ := intOf(args, 1)
	to, _ := intOf(args, 2)
	return 1 + units(to-from)
}

// The largest quantity that is read. Beyond, a short text is a number of a billion
// digits, and comparing it ends with no context.
const (
	maxQuantityLength   = 64
	maxQuantityExponent = 100
)

func quantityPrice(args []ref.Val) uint64 {
	text := textOf(args, 0)
	if len(text) > maxQuantityLength {
		return unaffordable
	}
	if e := strings.LastIndexAny(text, "eE"); e >= 0 {
		exponent, _ := strconv.Atoi(text[e+1:]) // of a number that does not fit, the largest or the smallest that does
		if exponent > maxQuantityExponent || exponent < -maxQuantityExponent {
			return unaffordable
		}
	}
	return 1 + perBytes(len(text))
}

// maxList is the number of elements that the sum of two lists may have.
// It takes no memory, and can have more elements than there are numbers.
const maxList = 1 << 22

func sumPrice(args []ref.Val) uint64 {
	if sizeOf(args[0])+sizeOf(args[1]) > maxList {
		return unaffordable
	}
	return 1
}

// comparisonPrice is the cost of comparing two values: of reading the smaller one.
func comparisonPrice(args []ref.Val) uint64 {
	least := contentOf(args[0], unaffordable)
	return min(least, contentOf(args[1], least))
}

// membershipPrice is the cost of looking for a value in a list; in a map it is found at
// once.
func membershipPrice(args []ref.Val) uint64 {
	list, ok := args[1].(traits.Lister)
	if !ok {
		return 1 + textPrice(args[0])
	}
	switch args[0].(type) {
	case traits.Mapper, traits.Lister:
		return contentOf(list, unaffordable)
	default:
		return 1 + times(sizeOf(list), 1+textPrice(args[0]))
	}
}

// perStep is the part of upstream's cost of reading a byte that is counted for each
// step of a pattern. Upstream takes a letter for a step, but (a{100}){10} has a thousand steps,
// which only compiling it shows.
const perStep = 0.25

// costOfStep is the cost of compiling one step of a pattern.
const costOfStep = 4

// patternPrice is the cost of a call that matches a text with a pattern. Overload is the number of
// steps of a constant pattern; another one is compiled first. The function findAll makes a list of as
// many texts as it may find.
func patternPrice(name, overload string, args []ref.Val) uint64 {
	cost := uint64(1)
	steps, err := strconv.Atoi(overload)
	if err != nil {
		steps = stepsOf(textOf(args, 1))
		cost += units(steps) * costOfStep
	}
	length := len(textOf(args, 0))
	cost += uint64(math.Ceil(float64(1+length) * perByte * float64(steps) * perStep))
	if name == "findAll" {
		most, ok := intOf(args, 2)
		if !ok || most < 0 {
			most = length + 1
		}
		cost += units(min(most, length+1))
	}
	return cost
}

// units is the cost of a number of things of which each costs one.
func units(n int) uint64 { return uint64(max(n, 0)) }

func perBytes(n int) uint64 { return uint64(math.Ceil(float64(n) * perByte)) }

// times multiplies costs. A product that is too large to be counted is the largest there is.
func times(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high != 0 || low == math.MaxUint64 {
		return math.MaxUint64 / 2
	}
	return low
}

// textOf returns an argument that is text. Of another type it has no cost: the call
// fails.
func textOf(args []ref.Val, i int) string {
	if i >= len(args) {
		return ""
	}
	text, _ := args[i].(types.String)
	return string(text)
}

func intOf(args []ref.Val, i int) (int, bool) {
	if i >= len(args) {
		return 0, false
	}
	n, ok := args[i].(types.Int)
	return int(n), ok
}

func sizeOf(value ref.Val) uint64 {
	list, ok := value.(traits.Lister)
	if !ok {
		return 0
	}
	size, _ := list.Size().(types.Int)
	return units(int(size))
}

// textPrice is the cost of reading a value, if it is text.
func textPrice(value ref.Val) uint64 {
	switch v := value.(type) {
	case types.String:
		return perBytes(len(v))
	case types.Bytes:
		return perBytes(len(v))
	default:
		return 0
	}
}

// contentOf returns the cost of reading all of a value, up to a limit.
func contentOf(value ref.Val, limit uint64) uint64 {
	m := meter{limit: limit}
	m.read(value)
	return min(m.total, limit)
}

type meter struct{ total, limit uint64 }

func (m *meter) read(value ref.Val) {
	m.total++
	switch v := value.(type) {
	case types.String, types.Bytes:
		m.total += textPrice(v)
	case *types.Optional:
		if v.HasValue() {
			m.read(v.GetValue())
		}
	case traits.Lister, traits.Mapper:
		switch native := value.Value().(type) {
		case map[string]any, []any:
			m.readJSON(native)
			return
		}
		mapper, isMap := value.(traits.Mapper)
		for it := value.(traits.Iterable).Iterator(); it.HasNext() == types.True && m.total < m.limit; {
			element := it.Next()
			m.read(element)
			if isMap {
				m.read(mapper.Get(element))
			}
		}
	}
}

// readJSON reads the parts of a value that JSON decodes to: to make CEL values of them takes longer
// than comparing them.
func (m *meter) readJSON(value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			if m.total >= m.limit {
				break
			}
			m.total += 1 + perBytes(len(key))
			m.readJSON(element)
		}
	case []any:
		for _, element := range v {
			if m.total >= m.limit {
				break
			}
			m.total++
			m.readJSON(element)
		}
	case string:
		m.total += perBytes(len(v))
	case ref.Val:
		m.read(v)
	}
}
