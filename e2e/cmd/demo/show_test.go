package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrap(t *testing.T) {
	words := strings.Repeat("word ", 50)
	lines := wrap(words)
	require.Len(t, lines, 3)
	for i, line := range lines {
		require.LessOrEqual(t, len(line), width)
		require.Equal(t, i > 0, strings.HasPrefix(line, "  "), "what is continued is indented")
	}
	require.Equal(t, strings.Fields(words), strings.Fields(strings.Join(lines, " ")))

	for name, line := range map[string]string{
		"a line that fits":           "it fits",
		"a line of columns":          "NAME   AGE   " + strings.Repeat("x ", width),
		"a word longer than a line ": strings.Repeat("x", 2*width),
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, []string{line}, wrap(line)) })
	}
}

func TestShellWords(t *testing.T) {
	require.Equal(t, `get pods -o 'jsonpath={.items}'`, shellWords([]string{"get", "pods", "-o", "jsonpath={.items}"}))
}
