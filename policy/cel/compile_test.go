package cel

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCompileSaysWhatIsWrongAndWhereD03(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		place  Place
		text   string
		result Type
		want   string
	}{
		"a variable that is misspelt is named, with those there are": {
			OfToleration, "podd.metadata.name == 'x'", Bool,
			"line 1, column 1: undeclared reference to 'podd'; seen here are authorizer, claim, namespaceObject, object, oldObject, pod, request, toleration",
		},
		"a variable of another place is not seen": {
			OfTaint, "toleration.key == 'x'", Bool,
			"line 1, column 1: undeclared reference to 'toleration'; seen here are authorizer, namespaceObject, object, oldObject, operation, request, taint",
		},
		"params and variables are those of upstream's policies only": {
			OfRequest, "params.x == variables.y", Bool,
			"line 1, column 1: undeclared reference to 'params'; seen here are authorizer, namespaceObject, object, oldObject, request (and 1 more)",
		},
		"lines and columns count from 1": {OfRequest, "true &&\n  nobody", Bool, "line 2, column 3: undeclared reference to 'nobody'; seen here are authorizer, namespaceObject, object, oldObject, request"},
		"columns count characters":       {OfRequest, "'äöü' == x", Bool, "line 1, column 10: undeclared reference to 'x'; seen here are authorizer, namespaceObject, object, oldObject, request"},
		"the first of several is shown":  {OfToleration, "toleration.keys == '' || toleration.values == ''", Bool, "line 1, column 11: undefined field 'keys' (and 1 more)"},
		"a misspelt field of a taint":    {OfTaint, "taint.added == null", Bool, "line 1, column 6: undefined field 'added'"},
		"the objects are not in request": {OfRequest, "request.object == null", Bool, "line 1, column 8: undefined field 'object'"},
		"a function that does not exist": {OfRequest, "http('x') == 1", Bool, "line 1, column 5: undeclared reference to 'http'"},
		"types that do not go together":  {OfTaint, "operation == 1", Bool, "line 1, column 11: found no matching overload for '_==_' applied to '(string, int)'"},
		"a string where a bool has to be": {
			OfRequest, "'yes'", Bool, "has to be a bool, and is a string",
		},
		"a bool where a string has to be": {OfRequest, "true", String, "has to be a string, and is a bool"},
		"what may be anything has to be made a bool": {
			OfRequest, "object.spec.hostNetwork", Bool,
			"has to be a bool, and is a dyn: compare it with something, or write bool(...) around it",
		},
		"a pattern that makes no sense":             {OfRequest, "object.metadata.name.matches('(')", Bool, "line 1, column 30: invalid matches argument"},
		"one that the check does not look at":       {OfRequest, "'x'.find('(') == ''", Bool, "the pattern makes no sense: error parsing regexp: missing closing ): `(`"},
		"a duration that makes no sense":            {OfRequest, "duration('one') > duration('1s')", Bool, "line 1, column 10: invalid duration argument"},
		"a text that does not end":                  {OfRequest, "'x == 1", Bool, `line 1, column 1: Syntax error: token recognition error at: ''x == 1' (and 1 more)`},
		"nothing":                                   {OfRequest, " \n", Bool, "is empty"},
		"text that is too long":                     {OfRequest, "'" + strings.Repeat("x", maxLength) + "' == ''", Bool, "is 16392 bytes long, of which 16384 are allowed"},
		"bytes that are no text":                    {OfRequest, "'\xff' == ''", Bool, "is not UTF-8"},
		"what is nested too deep for the parser":    {OfRequest, strings.Repeat("(", 4000) + "true" + strings.Repeat(")", 4000), Bool, "expression recursion limit exceeded: 250"},
		"what a long error says is cut to one line": {OfRequest, "object." + strings.Repeat("é", 400) + " == 1", Bool, "line 1, column 8: Syntax error: token recognition error at: 'é' (and 99 more)"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program, err := Compile(tt.place, tt.text, tt.result)
			require.Nil(t, program)
			require.ErrorAs(t, err, new(*Error))
			require.EqualError(t, err, tt.want)
			require.LessOrEqual(t, len(err.Error()), 500)
		})
	}
}

// grown is an expression of the greatest length that goes on and on.
func grown(from, step string) string {
	return from + strings.Repeat(step, (maxLength-100)/len(step)) + " == dyn(1)"
}

// hostile are texts of the greatest length that make the parser, the checker or the
// planner work as hard as they can.
func hostile() map[string]string {
	fill := func(before, middle, after string) string {
		n := (maxLength - 10 - len(middle)) / (len(before) + len(after))
		return strings.Repeat(before, n) + middle + strings.Repeat(after, n)
	}
	return map[string]string{
		"parentheses":     fill("(", "true", ")"),
		"open":            strings.Repeat("(", maxLength),
		"lists":           fill("[", "1", "]"),
		"maps":            fill("{1:", "1", "}"),
		"many maps":       "[" + strings.Repeat("{'a':1},", 1800) + "1].size() == 1",
		"many lists":      "[" + strings.Repeat("[1,'a'],", 1900) + "1].size() == 1",
		"negations":       fill("!", "true", ""),
		"disjunctions":    fill("true||", "true", ""),
		"sums":            fill("1+", "1", "") + " == 1",
		"conditions":      fill("true?1:", "1", ""),
		"loops":           fill("[1].all(a,", "true", ")"),
		"double loops":    fill("[1].exists_one(a,", "true", ")"),
		"transformations": fill("[1].transformList(a,b,", "1", ")"),
		"fields":          fill("", "object", ".a"),
		"optional fields": fill("", "object", ".?a"),
		"indexes":         fill("", "object", "[0]"),
		"unknowns":        strings.Repeat("f(x)+", 3000) + "1",
		"garbage":         strings.Repeat("@#$", 5000),
		"numbers":         strings.Repeat("1.", 8000),
		"patterns":        "'x'.matches('" + strings.Repeat("(x{10}){10}|", 1200) + "')",
		"wide patterns":   "'x'.matches('" + strings.Repeat("y{1000}|", 1900) + "')",
		"keys of maps":    grown("['a']", ".map(a, {a: a})"),
		"maps of maps":    grown("['a']", ".map(a, {1: a})"),
		"lists of lists":  grown("[1]", ".map(a, [a])"),
		"optionals":       grown("[1]", ".map(a, [optional.of(a)])"),
		"types of types":  grown("[type(1)]", ".map(a, type([a]))"),
		"macros twice":    grown("optional.of(1)", ".optMap(a, a)"),
		"maps by entries": grown("{'a': 'a'}", ".transformMapEntry(k, v, {v: {k: v}})"),
		"equations":       fill("1==1&&", "true", ""),
		"empty lists":     "[" + fill("[],", "[]", "") + "].size() == 1",
		"empty maps":      "[" + fill("{},", "{}", "") + "].size() == 1",
		"overloads":       fill("size([])==0&&", "true", ""),
		"a long text":     "'" + strings.Repeat("a", maxLength-10) + "' == ''",
	}
}

// Nothing is said here of time, of which a busy machine takes more; see
// BenchmarkCompileHostile. What would take minutes is noticed all the same.
func TestCompileEndsOnHostileTextsD01(t *testing.T) {
	t.Parallel()
	for name, text := range hostile() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if program, err := Compile(OfRequest, text, Bool); err != nil {
				require.ErrorAs(t, err, new(*Error))
			} else {
				_, _ = program.Bool(t.Context(), review("anna"), nil)
			}
		})
	}
}

// What these make of a short text takes a minute to check, or for ever.
func TestWhatTakesLongToCheckIsNotCheckedD01(t *testing.T) {
	t.Parallel()
	const (
		types = "makes lists and maps of lists and maps: a type may have 32 parts"
		parts = "parts when its macros are written out, of which 4096 are allowed"
		open  = "that may be of any type"
	)
	steps := func(from, step string, n int, to string) string { return from + strings.Repeat(step, n) + to }
	for name, tt := range map[string]struct{ text, want string }{
		"maps keyed by maps":             {steps("['a']", ".map(a, {a: a})", 12, ".size() == 1"), "line 1, column 74: " + types},
		"maps keyed by what is selected": {steps("[{'a': {'b': 'c'}}]", ".map(a, {a: a['a']})", 30, ".size() == 1"), types},
		"lists of lists":                 {steps("[1]", ".map(a, [a])", 200, ".size() == 1"), types},
		"lists of lists added up":        {steps("[1]", ".map(a, [a] + [a])", 100, ".size() == 1"), types},
		"optionals of lists":             {steps("[1]", ".map(a, [optional.of(a)])", 200, ".size() == 1"), types},
		"types of lists":                 {steps("[1]", ".map(a, [type(a)])", 200, ".size() == 1"), types},
		"one of two":                     {steps("[1]", ".map(a, true ? [a] : [])", 200, ".size() == 1"), types},
		"sorted":                         {steps("[1]", ".map(a, [a].sortBy(x, 1))", 60, ".size() == 1"), types},
		"transformed":                    {steps("{'a': 'a'}", ".transformMapEntry(k, v, {v: {k: v}})", 12, ".size() == 1"), types},
		"mapped":                         {steps("[1]", ".transformMap(i, a, [a]).map(k, {k: k})", 40, ".size() == 1"), types},
		"an optional that is mapped":     {steps("optional.of(1)", ".optMap(a, a)", 12, ".hasValue()"), parts},
		"an optional of an optional":     {steps("optional.of(1)", ".optFlatMap(a, optional.of(a))", 10, ".hasValue()"), parts},
		"comparisons":                    {steps("1==1", "&&1==1", 2000, ""), parts},
		"empty maps":                     {steps("[{}", ",{}", 3000, "].size()==1"), open},
		"what has many overloads":        {steps("true", "&&size([])==0", 700, ""), open},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile(OfRequest, tt.text, Bool)
			require.ErrorContains(t, err, tt.want)
		})
	}
	for name, text := range map[string]string{
		"what people nest":     "[[1, 2], [3]].map(l, {'a': l, 'b': []}).exists(m, m['a'].map(x, [x]).size() == 2)",
		"a map of maps":        "{'a': {'b': {'c': [1]}}}.a.b.c == [1]",
		"a long way down":      "pod" + strings.Repeat(".?spec", 60) + ".hasValue()",
		"a list of 1,000":      "object.x in ['a'" + strings.Repeat(",'a'", 1000) + "]",
		"300 comparisons":      steps("object.x == 'abc'", " || object.x == 'abc'", 300, ""),
		"50 loops":             steps("true", " && pod.spec.containers.all(c, c.image.startsWith('a') || c.name == 'b')", 50, ""),
		"lists filtered often": steps("request.userInfo.groups", ".filter(g, g != 'a')", 40, ".size() == 1"),
		"lists added up":       steps("[1]", " + [1]", 150, " == []"),
		"optionals in a row":   "pod.?spec.optMap(s, s).optMap(s, s).optMap(s, s).hasValue()",
		"fields of a requester": "request.userInfo.extra.all(k, request.userInfo.extra[k].all(v, v != '')) && " +
			"request.?userInfo.?extra[?'a'][?0].orValue('') == ''",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mustCompile(t, OfToleration, text)
		})
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	tests := map[string]Uses{
		"true":                                                                  {},
		"toleration.key == 'x'":                                                 {Judged: true},
		"namespaceObject.metadata.name == 'x'":                                  {Namespace: true},
		"request.namespace == 'x'":                                              {Request: []string{"namespace"}},
		"request.operation == 'CREATE'":                                         {Request: []string{"operation"}},
		"request.?subResource.orValue('') == ''":                                {Request: []string{"subResource"}},
		"request.userInfo.username == 'x'":                                      {Requester: true, Request: []string{"userInfo"}},
		".request.userInfo.username == 'x'":                                     {Requester: true, Request: []string{"userInfo"}},
		"[1].exists(request, .request.userInfo.username == 'x')":                {Requester: true, Request: []string{"userInfo"}},
		"[1].exists(toleration, .toleration.key == 'safe')":                     {Judged: true},
		"[1].exists(pod, .pod.spec.hostNetwork)":                                {Object: true},
		"[1].exists(authorizer, .authorizer.path('/x').check('get').allowed())": {Requester: true},
		"request.?userInfo.hasValue()":                                          {Requester: true, Request: []string{"userInfo"}},
		"has(request.userInfo)":                                                 {Requester: true, Request: []string{"userInfo"}},
		"request != null":                                                       {Requester: true},
		"[request].size() == 1":                                                 {Requester: true},
		"{'a': request}.size() == 1":                                            {Requester: true},
		"dyn(request)['userInfo'] != null":                                      {Requester: true},
		"authorizer.path('/x').check('get').allowed()":                          {Requester: true},
		"authorizer.requestResource.check('get').allowed()":                     {Requester: true},
		"[1].all(i, request.userInfo.username == string(i))":                    {Requester: true, Request: []string{"userInfo"}},
		"request.name == request.namespace || request.name == 'x'":              {Request: []string{"name", "namespace"}},
		"object != null":                                                        {Object: true},
		"oldObject == null":                                                     {Object: true},
		"has(pod.spec.hostNetwork)":                                             {Object: true},
		"claim.?spec.hasValue()":                                                {Object: true},
		"pod == null || request.userInfo.uid == ''":                             {Requester: true, Object: true, Request: []string{"userInfo"}},
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			program := mustCompile(t, OfToleration, text)
			require.Equal(t, want, program.Uses())
		})
	}
}

func FuzzCompile(f *testing.F) {
	for _, text := range []string{
		"true", "pod.metadata.?labels[?'a'].orValue('') == 'b'", "object.x.all(y, y > 1)", "toleration.key.matches('^a+$')",
		"authorizer.group('').resource('pods').check('get').allowed()", "{1: 'a'}[1] == 'a'", "[1, 2].map(x, x * 2).sum() > 1",
		"'%d %s'.format([1, 'a']) == ''", "quantity('1Gi').isGreaterThan(quantity('1'))", "lists.range(5).sort() == [0]", "\x00", "'\\u00", "1e999",
		"['a'].map(a, {a: a}).map(a, {a: a}).map(a, {a: a}).size() == 1", "[1].map(a, [a]).map(a, [a]).size() == 1",
		"optional.of(1).optMap(a, a).optFlatMap(a, optional.of(a)).hasValue()", "{'a': 1}.transformMapEntry(k, v, {v: {k: v}}).size() == 1",
		"quantity('1e100').compareTo(quantity('1e-100')) == 0 || isQuantity('1e999999999')", "[[1]].map(a, a + a).map(a, a + a).all(a, 7 in a)",
		"'a'.replace('', 'b').split('').join('c') == ''", "timestamp('2020-01-01T00:00:00Z').getHours('../../x') == 1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		program, err := Compile(OfToleration, text, Bool)
		if err != nil {
			require.ErrorAs(t, err, new(*Error))
			require.LessOrEqual(t, len(err.Error()), 500)
			return
		}
		r := review("anna")
		if _, err := program.Bool(t.Context(), r, judged(toleration())); err != nil {
			require.ErrorAs(t, err, new(*FailedError), "%v", err)
		}
		require.LessOrEqual(t, r.spent, costPerReview)
	})
}
