package cel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnExpressionReadsElsewhereAsItDoesHere(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		place      Place
		text, want string
		names      []string
	}{
		"fields are fields": {OfToleration, "toleration.key == 'a'", "toleration.key == 'a'", []string{"toleration"}},
		"whether text is set is a field": {
			OfToleration, "has( toleration . key ) && !has(toleration.effect)", "toleration.set_key && !toleration.set_effect", []string{"toleration"},
		},
		"what has no default is there or not":   {OfToleration, "has(toleration.tolerationSeconds)", "has(toleration.tolerationSeconds)", []string{"toleration"}},
		"the time of a taint is there or not":   {OfTaint, "has(taint.timeAdded) && has(taint.value)", "has(taint.timeAdded) && taint.set_value", []string{"taint"}},
		"other fields are asked as ever":        {OfToleration, "has(pod.metadata) || operation(1)", "", nil},
		"what is read is known":                 {OfRequest, "object.metadata.name == request.name", "object.metadata.name == request.name", []string{"object", "request"}},
		"what asks who is authorized is told":   {OfTaint, "authorizer.path('/x').check('get').allowed()", "authorizer.path('/x').check('get').allowed()", []string{"authorizer"}},
		"a comment stays where the text ends":   {OfToleration, "true // toleration", "true // toleration", nil},
		"what only looks like it in text stays": {OfToleration, "toleration.key == 'has(pod.x)'", "toleration.key == 'has(pod.x)'", []string{"toleration"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			got, err := Embed(c.place, c.text, Bool)
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Text)
			require.Equal(t, c.names, got.Names)
		})
	}
}

func TestAnExpressionThatWouldReadOtherwiseIsNotEmbedded(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ text, problem string }{
		"a toleration as a whole":             {"dyn(toleration) != null", "as a whole"},
		"a has() in a string":                 {`toleration.key == "has(toleration.value)"`, "the string \"has(toleration.value)\""},
		"an optional field":                   {"toleration.?key.hasValue()", "as a whole"},
		"a variable of the same name":         {"[1].exists(toleration, toleration > 0)", "its own variable toleration"},
		"a variable with a dot before it":     {".toleration.key == 'a'", "without the dot"},
		"a question with a comment within it": {"has(toleration // one\n.key)", "write has(toleration.key)"},
		"a question that stands in text too":  {"has(toleration/**/.key) && 'has(toleration.key)' != ''", ""},
		"what does not compile":               {"toleration.kye", "kye"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := Embed(OfToleration, c.text, Bool)
			require.ErrorContains(t, err, c.problem)
		})
	}
}
