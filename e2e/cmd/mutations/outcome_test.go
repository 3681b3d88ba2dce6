package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheOutcomeIsReadFromTheOutputOfTheTests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		output []string
		want   result
	}{
		{
			"tests that pass do not catch the fault",
			[]string{`{"Action":"run","Test":"TestA"}`, `{"Action":"pass","Test":"TestA"}`, `{"Action":"pass","Package":"p"}`},
			result{notCaught, ""},
		},
		{
			"no test at all does not catch it either",
			[]string{`{"Action":"output","Package":"p","Output":"testing: warning: no tests to run\n"}`, `{"Action":"pass","Package":"p"}`},
			result{notCaught, ""},
		},
		{
			"of the tests that fail the innermost is named",
			[]string{`{"Action":"fail","Test":"TestA/b"}`, `{"Action":"fail","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`},
			result{caught, "by TestA/b"},
		},
		{
			"a process that ends without saying of which test it is has caught it",
			[]string{`{"Action":"output","Package":"p","Output":"panic: boom\n"}`, `{"Action":"fail","Package":"p"}`},
			result{caught, "by a process that ended"},
		},
		{
			"a test that does not end has caught it, with a remark",
			[]string{`{"Action":"output","Test":"TestA","Output":"panic: test timed out after 2m0s\n"}`, `{"Action":"fail","Test":"TestA"}`, `{"Action":"fail","Package":"p"}`},
			result{caught, "by TestA which did not end"},
		},
		{
			"a source that does not compile catches nothing",
			[]string{
				`{"ImportPath":"p","Action":"build-output","Output":"# p\n"}`, `{"ImportPath":"p","Action":"build-output","Output":"a.go:1: undefined: x\n"}`,
				`{"ImportPath":"p","Action":"build-fail"}`, `{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			},
			result{broken, "# p\na.go:1: undefined: x"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := resultOf(strings.NewReader(strings.Join(test.output, "\n")))
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}

	t.Run("output of another kind is an error", func(t *testing.T) {
		t.Parallel()
		_, err := resultOf(strings.NewReader("FAIL"))
		require.Error(t, err)
	})
}
