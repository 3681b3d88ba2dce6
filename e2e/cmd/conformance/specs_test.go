package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheListSaysWhyEachSpecIsLeftOut(t *testing.T) {
	t.Parallel()
	selected, err := readSelection(specsFile, "")
	require.NoError(t, err)
	for _, g := range selected.Groups {
		require.NotEmpty(t, g.Name)
		require.NotEmpty(t, g.Specs.String(), g.Name)
	}
	for _, l := range selected.LeaveOut {
		require.NotEmpty(t, l.Name)
		require.NotEmpty(t, l.Specs.String(), l.Name)
		require.NotEmpty(t, l.Why, l.Name)
	}
}

func TestGroupsAreSelectedByAPartOfTheirName(t *testing.T) {
	t.Parallel()
	selected, err := readSelection([]byte(someSpecs), "quo")
	require.NoError(t, err)
	require.Equal(t, []string{`--focus=\[sig-apps\] Quota `, "--skip=exec"}, selected.flags())
	require.Equal(t, 0, selected.group(quota))
	require.Equal(t, -1, selected.group(taint))

	_, err = readSelection([]byte(someSpecs), "network")
	require.EqualError(t, err, `select specs: no group of specs.yaml has "network" in its name`)
}

func TestAListThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ file, err string }{
		"a pattern that is no regular expression": {file: `{groups: [{name: a, specs: "("}]}`, err: "compile pattern of specs"},
		"a field that is unknown":                 {file: `{groups: [{name: a, spec: b}]}`, err: "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readSelection([]byte(tt.file), "")
			require.ErrorContains(t, err, tt.err)
		})
	}
}
