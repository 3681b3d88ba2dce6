package policy

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestShort(t *testing.T) {
	tests := map[string]struct {
		in      string
		longest int
		want    string
	}{
		"what fits stays":                   {"dedicated", 9, "dedicated"},
		"what does not is cut":              {"dedicated", 8, "dedic..."},
		"a cut leaves characters whole":     {"aé界界", 7, "aé..."},
		"a line stays one":                  {"a\nb\r\u2028c", 20, "a b  c"},
		"a terminal is not told what to do": {"\x1b[31mred", 20, " [31mred"},
		"text is not turned around":         {"a\u202eb", 20, "a b"},
		"what is no text is blank":          {"a\xffb", 20, "a b"},
		"no room leaves the dots":           {"dedicated", 1, "..."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, Short(tt.in, tt.longest))
		})
	}
}

func TestList(t *testing.T) {
	tests := map[string]struct {
		items []string
		want  string
	}{
		"none":                   {nil, ""},
		"one":                    {[]string{"a"}, "a"},
		"an empty one is quoted": {[]string{"", "a"}, `"", a`},
		"as many as are named":   {[]string{"a", "b", "c", "d", "e"}, "a, b, c, d, e"},
		"the rest is counted":    {[]string{"a", "b", "c", "d", "e", "f", "g"}, "a, b, c, d, e and 2 more"},
		"a long one is cut":      {[]string{strings.Repeat("x", 20)}, "xxxxxxx..."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, ShortList(tt.items, ", ", 10))
		})
	}
}

func TestSubjects(t *testing.T) {
	require.Equal(t, "user jane, group sre, service account infra/operator, Robot r2", ShortSubjects([]rbacv1.Subject{
		{Kind: rbacv1.UserKind, Name: "jane"},
		{Kind: rbacv1.GroupKind, Name: "sre"},
		{Kind: rbacv1.ServiceAccountKind, Name: "operator", Namespace: "infra"},
		{Kind: "Robot", Name: "r2"},
	}))
}

func TestValidateMessage(t *testing.T) {
	for message, want := range map[string]string{
		"":                             "",
		"ask the owners 🚪\n":           "",
		strings.Repeat("é", 1024):      "",
		strings.Repeat("é", 1025):      "Too long",
		"two\nlines":                   "must be one line",
		"turned \u202earound":          "must be one line",
		"no text \xff whatever it may": "must be one line",
	} {
		errs := ValidateMessage(message, nil)
		if want == "" {
			require.Empty(t, errs, message)
			continue
		}
		require.ErrorContains(t, errs.ToAggregate(), want, message)
	}
}

func FuzzShort(f *testing.F) {
	f.Add("dedicated", 5)
	f.Add("\x1b[31m界\xff\u202e", 4)
	f.Fuzz(func(t *testing.T, in string, longest int) {
		longest = max(3, min(longest, 4096))
		got := Short(in, longest)
		require.LessOrEqual(t, len(got), longest)
		require.True(t, utf8.ValidString(got))
		require.NotContains(t, got, "\n")
	})
}
