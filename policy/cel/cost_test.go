package cel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// sample is an object and its copy, decoded once for all reviews of it.
type sample struct {
	object, oldObject []byte
	decoded           seen
}

func newSample(tb testing.TB, object string) *sample {
	tb.Helper()
	s := &sample{object: []byte(object), oldObject: []byte(object)}
	for _, raw := range [][]byte{s.object, s.oldObject} {
		_, err := s.decoded.decode(raw, projection{})
		require.NoError(tb, err)
	}
	return s
}

// review returns a review of the object, or of nothing.
func (s *sample) review() *Review {
	r := review("anna")
	r.Request.Object = runtime.RawExtension{}
	if s != nil {
		r.Request.Object.Raw, r.Request.OldObject.Raw = s.object, s.oldObject
		r.seen.documents = slices.Clone(s.decoded.documents)
	}
	return r
}

// large are objects of almost 3 MiB, the largest that the API server takes, and a
// small one.
type large struct{ text, list, tree, small *sample }

const largest = 3 << 20

func newLarge(tb testing.TB) large {
	tb.Helper()
	fill := func(element func(i int) string) string {
		var b strings.Builder
		b.WriteString(`{"l":[`)
		for i := 0; b.Len() < largest-200; i++ {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(element(i))
		}
		return b.String() + `]}`
	}
	return large{
		text:  newSample(tb, `{"s":"`+strings.Repeat("a", largest-200)+`","t":"`+strings.Repeat("a", 100)+`"}`),
		list:  newSample(tb, fill(func(i int) string { return strconv.Itoa(i % 10) })),
		small: newSample(tb, `{"l":[0`+strings.Repeat(",1", 2000)+`]}`),
		tree:  newSample(tb, fill(func(i int) string { return fmt.Sprintf(`{"name":"n%d","v":{"x":%d}}`, i, i) })),
	}
}

// costly are expressions that, without limits, run for minutes or take all memory
// there is. Upstream stops the first group late and the second not at all.
func costly(of large) map[string]struct {
	object *sample
	text   string
} {
	type on = struct {
		object *sample
		text   string
	}
	return map[string]on{
		"a loop":                           {of.list, "object.l.all(a, a >= 0)"},
		"a loop in a loop":                 {of.list, "object.l.all(a, object.l.all(b, a >= 0 && b >= 0))"},
		"a loop in a loop over maps":       {of.tree, "object.l.all(a, object.l.all(b, a.v.x >= 0 && b.v.x >= 0))"},
		"a loop that makes a list":         {of.list, "object.l.map(a, [a, a]).size() > 0"},
		"a loop that makes maps":           {of.list, "object.l.transformMap(i, a, {'a': a}).size() > 0"},
		"large objects compared":           {of.tree, "lists.range(1000).all(i, object == oldObject)"},
		"objects compared often":           {of.small, "lists.range(20).all(i, object == oldObject)"},
		"a value looked for in a list":     {of.list, "lists.range(1000).all(i, !(77 in object.l))"},
		"an object looked for in a list":   {of.tree, "lists.range(1000).all(i, !(object in oldObject.l))"},
		"the size of a text":               {of.text, "lists.range(1000).all(i, object.s.size() > 0)"},
		"a text made number":               {of.text, "lists.range(1000).all(i, int(object.s) == 0 || true)"},
		"a text read by character":         {of.text, "lists.range(1000).all(i, object.s.charAt(7) == 'a')"},
		"texts ordered":                    {of.text, "lists.range(1000).all(i, object.s >= oldObject.s)"},
		"a list summed up":                 {of.list, "object.l.sum() > 0"},
		"a list searched":                  {of.list, "object.l.indexOf(77) == -1"},
		"a list sorted":                    {of.list, "object.l.map(a, int(a)).sort().size() > 0"},
		"a list without doubles":           {of.list, "object.l.distinct().size() > 0"},
		"two sets":                         {of.list, "sets.intersects(object.l, oldObject.l)"},
		"a pattern over a large text":      {of.text, "object.s.matches('^(a|aa)+$')"},
		"a short pattern of many steps":    {of.text, "object.s.matches('(x?){1000}')"},
		"a pattern made while it runs":     {of.text, "lists.range(3000).all(i, !'a'.matches('((x{10}){10}){9}' + string(i)))"},
		"a pattern that is as large":       {of.text, "'a'.matches(object.s)"},
		"what a pattern finds":             {of.text, "object.s.findAll('a|b').size() > 0"},
		"a text looked for in constants":   {of.text, "object.s in ['x', 'y']"},
		"a text looked for in a map":       {of.text, "object.s in {'x': 1}"},
		"a value in a list without end":    {nil, doubled("7 in a")},
		"a list without end":               {nil, doubled("a.size() > 0")},
		"two optional lists without end":   {nil, nested("optional.of(a) == optional.of(b)")},
		"a nested list in a list":          {nil, nested("a in [b]")},
		"quantities of many digits":        {nil, "quantity('1e' + string(999999999)).isGreaterThan(quantity('1.5'))"},
		"a quantity that is almost none":   {nil, "isQuantity('1e-' + string(999999999))"},
		"a quantity of a constant":         {nil, "quantity('1E+999999999').compareTo(quantity('1n')) == 0"},
		"an exponent beyond all numbers":   {nil, "isQuantity('1e99999999999999999999')"},
		"a quantity from a large text":     {of.text, "isQuantity(object.s)"},
		"memory by a range":                {nil, "lists.range(9223372036854775807).size() > 0"},
		"memory by a replacement":          {of.text, "object.t.replace('a', object.s).size() > 0"},
		"memory by a split":                {of.text, "object.s.split('').size() > 0"},
		"memory by a join":                 {of.list, "object.l.map(a, string(a)).join('x').size() > 0"},
		"memory by a long separator":       {of.text, "lists.range(900).map(i, 'x').join(object.s).size() > 0"},
		"memory by a format":               {of.text, "'%s%s%s%s'.format([object.s, object.s, object.s, object.s]).size() > 0"},
		"memory by lists of the same list": {of.list, "lists.range(100).map(i, object.l).flatten().size() > 0"},
		"questions":                        {nil, "lists.range(200).all(i, !authorizer.path('/' + string(i)).check('get').allowed())"},
	}
}

// doubled is an expression about a, a list of 2^25 elements that takes no memory.
func doubled(about string) string {
	return "[[1]]" + strings.Repeat(".map(a, a + a)", 25) + ".all(a, " + about + ")"
}

// nested is an expression about a and b, lists of two lists of two lists, 60 deep.
func nested(about string) string {
	tree := "[dyn(1)]" + strings.Repeat(".map(a, dyn([a, a]))", 60)
	return tree + ".all(a, " + tree + ".all(b, " + about + "))"
}

func TestAnExpressionThatCostsTooMuchFailsD01(t *testing.T) {
	t.Parallel()
	for name, tt := range costly(newLarge(t)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tt.object.review()
			got, err := mustCompile(t, OfRequest, tt.text).Bool(t.Context(), r, nil)
			require.False(t, got)
			require.ErrorAs(t, err, new(*FailedError))
			require.EqualError(t, err, tooCostly)
			require.LessOrEqual(t, r.spent, taken(costPerExpression))
		})
	}
}

func TestALargeObjectCanBeLookedAt(t *testing.T) {
	t.Parallel()
	of := newLarge(t)
	for text, object := range map[string]*sample{
		"object.l.size() > 100000":              of.list,
		"object.l[100000] == 0":                 of.list,
		"object.l.slice(0, 2) == [0, 1]":        of.list,
		"object.l[7].name == 'n7'":              of.tree,
		"object.s != 'x'":                       of.text,
		"!object.s.matches('b')":                newSample(t, `{"s":"`+strings.Repeat("a", 1<<20)+`"}`),
		"object.l.exists(a, a.name == 'n1000')": of.tree,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			got, err := mustCompile(t, OfRequest, text).Bool(t.Context(), object.review(), nil)
			require.NoError(t, err)
			require.True(t, got)
		})
	}
}

func TestTheExpressionsOfAReviewShareABudgetD01(t *testing.T) {
	t.Parallel()
	costly := mustCompile(t, OfRequest, "lists.range(1000000).size() > 0 || lists.range(4000).all(i, i >= 0)")
	cheap := mustCompile(t, OfToleration, "object == null || toleration.key == ''")
	loop := mustCompile(t, OfToleration, "lists.range(4000).all(i, i >= 0) || toleration.key == ''")

	r := &Review{}
	// until evaluates an expression, each time of another toleration, until the review
	// cannot pay for it.
	until := func(program *Program) (times int) {
		for {
			_, err := program.Bool(t.Context(), r, numbered(times))
			require.LessOrEqual(t, r.spent, costPerReview)
			if err != nil {
				require.ErrorAs(t, err, new(*FailedError))
				require.EqualError(t, err, exhausted)
				return times
			}
			times++
		}
	}
	require.Equal(t, 3, until(loop))
	require.Greater(t, until(cheap), 1000, "what is left is enough for many small ones")
	_, err := cheap.Bool(t.Context(), r, numbered(-1))
	require.EqualError(t, err, exhausted)
	_, err = cheap.Bool(t.Context(), &Review{}, nil)
	require.NoError(t, err, "another review has its own")
	_, err = costly.Bool(t.Context(), &Review{}, nil)
	require.EqualError(t, err, tooCostly)
}

func TestManyCheapExpressionsFitIntoAReview(t *testing.T) {
	t.Parallel()
	program := mustCompile(t, OfToleration, "pod.metadata.?labels[?'maintenance'].orValue('') == 'true' && pod.spec.containers.all(c, c.image.startsWith('registry.example/')) && toleration.key != ''")
	r := review("anna")
	for i := range 5_000 {
		got, err := program.Bool(t.Context(), r, judged(*numbered(i).Toleration))
		require.NoError(t, err)
		require.True(t, got)
	}
	require.Len(t, r.answers.more, maxAnswers-1)
}

// numbered returns a toleration that is like no other.
func numbered(i int) *Judged {
	return &Judged{Toleration: &corev1.Toleration{Key: "k" + strconv.Itoa(i)}}
}

func TestWhatIsAffordableIsNeverMoreThanWhatIsLeft(t *testing.T) {
	t.Parallel()
	for spent := uint64(0); spent <= costPerReview; spent += 997 {
		r := &Review{spent: spent}
		if level, ok := r.affordable(); ok {
			require.LessOrEqual(t, spent+taken(limits[level]), costPerReview)
		} else {
			require.Greater(t, spent+taken(limits[len(limits)-1]), costPerReview)
		}
	}
	_, ok := (&Review{spent: costPerReview + 5}).affordable()
	require.False(t, ok)
}

func TestBoundedFunctionsDoWhatTheyDoUpstream(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"'a.b.c'.replace('.', '-') == 'a-b-c' && 'a.b.c'.replace('.', '-', 1) == 'a-b.c'",
		"dyn('aa').replace('a', 'b') == 'bb'",
		"['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab'",
		"'a-b'.split('-') == ['a', 'b'] && 'a-b-c'.split('-', 2) == ['a', 'b-c']",
		"'%s is %d'.format(['a', 1]) == 'a is 1'",
		"[[1], [2]].flatten() == [1, 2]",
		"[1, 2, 1].distinct() == [1, 2] && [3, 1].sort() == [1, 3] && [3, 1].sortBy(x, -x) == [3, 1]",
		"sets.contains([1, 2], [1]) && sets.equivalent([1], [1, 1]) && !sets.intersects([1], [2])",
		"lists.range(3) == [0, 1, 2] && [0, 1, 2].slice(1, 2) == [1] && [1, 2].reverse() == [2, 1]",
		"'abc'.indexOf('c') == 2 && [1, 2, 1].lastIndexOf(1) == 2 && 'abcabc'.indexOf('c', 3) == 5",
		"[1, 2].isSorted() && [1, 2].sum() == 3 && [1, 2].min() == 1 && [1, 2].max() == 2",
		"'abc123'.matches('^[a-z]+[0-9]+$') && matches('abc', 'b') && !'abc'.matches('^b')",
		"'abc123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]') == ''",
		"'1a22b'.findAll('[0-9]+') == ['1', '22'] && '1a22b'.findAll('[0-9]+', 1) == ['1']",
		"object.metadata.name.matches('^' + object.metadata.labels.app + '-[0-9]$')",
		"'a' < 'b' && 'b' >= 'a' && 1 < 2 && 1.5 > 1 && [[1], [2]] == [[1], [2]] && {'a': 1} != {'a': 2}",
		"1 in [1, 2] && 'a' in {'a': 1} && !([1] in [[2]]) && [1] in [[1]]",
		"object.metadata.name in ['a', 'web-0'] && !(object.metadata.name in ['a']) && 'web' in object.metadata.labels.map(k, object.metadata.labels[k])",
		"[1] + [2] == [1, 2] && dyn([1]) + [2] == [1, 2] && dyn('a') + 'b' == 'ab' && dyn(1) in dyn([1]) && !(object.metadata.name in [])",
		"optional.of([1]) == optional.of([1]) && optional.none() != optional.of([2]) && !(optional.of(1) == optional.of(2))",
		"quantity('12e6').compareTo(quantity('12M')) == 0 && quantity('1E').isGreaterThan(quantity('1Pi')) && sign(quantity('-1e-3')) == -1",
		"isQuantity('1.5Gi') && isQuantity('1e100') && isQuantity('3Ei') && !isQuantity('1ee5') && !isQuantity('e') && !isQuantity('')",
		"'ab'.charAt(1) == 'b' && 'ab'.substring(1) == 'b' && ' a '.trim() == 'a' && 'A'.lowerAscii() == 'a'",
	} {
		got, err := mustCompile(t, OfRequest, text).Bool(t.Context(), review("anna"), nil)
		require.NoError(t, err, text)
		require.True(t, got, text)
	}
	for _, text := range []string{
		"'a'.matches(object.metadata.name + '(')", "'a'.find(object.metadata.name + '(') == ''", "dyn(5).matches('a')",
		"'a'.matches(dyn(5))", "dyn(5).replace('a', 'b') == ''", "dyn('a').split(dyn(5)).size() == 1", "'a'.findAll('a', dyn('b')).size() == 0",
		"sign(quantity('one')) == 0", "isQuantity(dyn(5))", "dyn(1) in dyn(2)", "dyn([1]) + 'a' == ''",
	} {
		_, err := mustCompile(t, OfRequest, text).Bool(t.Context(), review("anna"), nil)
		require.ErrorAs(t, err, new(*FailedError), text)
	}
}

// costOf returns the cost that was taken from the budget of a review.
func costOf(spent uint64) uint64 {
	var cost uint64
	for taken(cost) < spent {
		cost++
	}
	return cost
}

// A pod may have 256 KiB of annotations, and as many labels as fit into an object.
func TestB19APatternOverVeryLongLabelsAndAnnotationsCostsInProportionToThem(t *testing.T) {
	t.Parallel()
	const longest = 256 << 10
	annotated := func(bytes int) *Judged {
		return &Judged{Toleration: numbered(0).Toleration, Pod: []byte(`{"metadata":{"annotations":{"a":"` + strings.Repeat("a", bytes) + `"}},"spec":{}}`)}
	}
	labelled := func(bytes int) *Judged {
		var labels strings.Builder
		for i := 0; labels.Len() < bytes; i++ {
			fmt.Fprintf(&labels, `,"example.com/%06d":%q`, i, strings.Repeat("a", 63))
		}
		return &Judged{Toleration: numbered(0).Toleration, Pod: []byte(`{"metadata":{"labels":{"first":"a"` + labels.String() + `}},"spec":{}}`)}
	}
	tests := map[string]struct {
		text string
		pod  func(bytes int) *Judged
		// fails says that the longest costs more than an expression may.
		fails bool
	}{
		"a plain pattern":                  {"pod.metadata.annotations['a'].matches('^b')", annotated, false},
		"one on which others backtrack":    {"pod.metadata.annotations['a'].matches('^(a+)+$')", annotated, false},
		"alternatives of the same":         {"pod.metadata.annotations['a'].matches('(a|aa)+b$')", annotated, false},
		"what follows anything":            {"pod.metadata.annotations['a'].matches('.*.*.*=.*')", annotated, false},
		"what is found":                    {"pod.metadata.annotations['a'].find('b') == 'b'", annotated, false},
		"a pattern of many steps":          {"pod.metadata.annotations['a'].matches('((a{10}){10}){5}b')", annotated, true},
		"a pattern over each of the names": {"pod.metadata.labels.all(name, name.matches('^[a-z./0-9]+$'))", labelled, false},
		"a pattern over each of the texts": {"pod.metadata.labels.exists(name, pod.metadata.labels[name].matches('^(a|b)*c'))", labelled, true},
		"a pattern over one of the labels": {"pod.metadata.labels['example.com/000001'].matches('^(a|b)*c')", labelled, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := mustCompile(t, OfToleration, tt.text)
			cost := func(bytes int) (uint64, error) {
				r := review("anna")
				_, err := program.Bool(t.Context(), r, tt.pod(bytes))
				require.LessOrEqual(t, r.spent, taken(costPerExpression))
				return costOf(r.spent), err
			}
			few, err := cost(longest / 128)
			require.NoError(t, err)
			more, err := cost(longest / 64)
			require.NoError(t, err)
			require.LessOrEqual(t, more, 2*few+1, "twice as many bytes")
			most, err := cost(longest)
			if tt.fails {
				require.EqualError(t, err, tooCostly)
				return
			}
			require.NoError(t, err)
			require.LessOrEqual(t, most, 128*(few+1), "128 times as many bytes")
		})
	}
}
