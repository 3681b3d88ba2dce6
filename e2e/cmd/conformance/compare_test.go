package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const someSpecs = `
groups:
- {name: taints, specs: '\[sig-node\] Taints '}
- {name: quota, specs: '\[sig-apps\] Quota '}
leaveOut:
- {name: of containers, specs: 'exec', why: nodes are played}
`

func someSelection(t *testing.T) *selection {
	t.Helper()
	selected, err := readSelection([]byte(someSpecs), "")
	require.NoError(t, err)
	return selected
}

const (
	taint = "[sig-node] Taints evict"
	quota = "[sig-apps] Quota counts"
)

var (
	ok    = result{outcome: passed}
	bad   = result{outcome: failed, message: "failed: no"}
	flaky = result{outcome: passed, flaky: true, message: "once"}
	skips = result{outcome: skipped, message: "one node"}
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	others := []string{"[sig-node] Taints exec", "[sig-cli] exec"}
	for name, tt := range map[string]struct {
		without, with map[string]result
		err           string
		says          string
	}{
		"all pass on both": {without: map[string]result{taint: ok, quota: ok}, with: map[string]result{taint: ok, quota: ok}},
		"one fails with Tollgate": {
			without: map[string]result{taint: ok, quota: ok}, with: map[string]result{taint: bad, quota: ok},
			err:  "specs that pass without Tollgate and not with it: 1",
			says: "\nspecs that pass without Tollgate and not with it: 1\n  " + taint + "\n    without Tollgate: passes\n    with Tollgate:    fails: failed: no\n",
		},
		"one that passes without Tollgate skips itself with it": {
			without: map[string]result{taint: ok, quota: ok}, with: map[string]result{taint: skips, quota: ok},
			err:  "specs that pass without Tollgate and not with it: 1",
			says: "with Tollgate:    skips itself: one node\n",
		},
		"one has not run with Tollgate": {
			without: map[string]result{taint: ok, quota: ok}, with: map[string]result{quota: ok},
			err:  "specs that pass without Tollgate and not with it: 1",
			says: "with Tollgate:    fails: it has not run\n",
		},
		"one fails on both": {
			without: map[string]result{taint: bad, quota: ok}, with: map[string]result{taint: bad, quota: ok},
			err:  "specs that fail without Tollgate, so that they compare nothing: 1",
			says: "without Tollgate: fails: failed: no\n",
		},
		"one has run with Tollgate alone": {
			without: map[string]result{quota: ok}, with: map[string]result{taint: ok, quota: ok},
			err: "specs that fail without Tollgate, so that they compare nothing: 1",
		},
		"a flaky one is named and does not fail": {
			without: map[string]result{taint: ok, quota: ok}, with: map[string]result{taint: flaky, quota: ok},
			says: "(flaky): 1\n  " + taint + "\n    without Tollgate: passes\n    with Tollgate:    passes at the second try: once\n",
		},
		"one that skips itself on both is named and does not fail": {
			without: map[string]result{taint: skips, quota: ok}, with: map[string]result{taint: skips, quota: ok},
			says: "\nspecs that skip themselves without Tollgate: 1\n",
		},
		"a group without specs is stale": {
			without: map[string]result{taint: ok}, with: map[string]result{taint: ok},
			err: "specs.yaml: group quota matches no spec",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := compare(someSelection(t), &results{ran: tt.without, others: others}, &results{ran: tt.with, others: others})
			var out bytes.Buffer
			err := c.verdict(&out, true)
			require.Contains(t, out.String(), tt.says)
			if tt.err != "" {
				require.EqualError(t, err, tt.err)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestAnEntryThatLeavesNothingOutIsStale(t *testing.T) {
	t.Parallel()
	ran := &results{ran: map[string]result{taint: ok, quota: ok}, others: []string{"[sig-cli] exec"}}
	c := compare(someSelection(t), ran, ran)
	require.EqualError(t, c.verdict(new(bytes.Buffer), true), "specs.yaml: leaveOut of containers matches no spec")
	require.NoError(t, c.verdict(new(bytes.Buffer), false), "where only some groups were run")
}

func TestTheTablesCountSpecs(t *testing.T) {
	t.Parallel()
	c := compare(someSelection(t),
		&results{
			ran:    map[string]result{taint: ok, taint + " twice": skips, quota: ok},
			others: []string{"[sig-node] Taints exec", "[sig-cli] exec", "[sig-apps] Pods"},
		},
		&results{ran: map[string]result{taint: flaky, taint + " twice": bad, quota: ok}})
	require.Equal(t, `| specs of Kubernetes about | number | without Tollgate | with Tollgate |
|---|---|---|---|
| taints | 2 | 1 pass, 1 skip themselves | 1 pass, 1 of them at the second try, 1 fail |
| quota | 1 | 1 pass | 1 pass |
| all | 3 | 2 pass, 1 skip themselves | 2 pass, 1 of them at the second try, 1 fail |

| left out | number | why |
|---|---|---|
| of containers | 1 | nodes are played |
`, c.tables())
}

func TestTheTablesReplaceThoseOfThePage(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	page := filepath.Join(root, "docs", "parity.md")
	require.NoError(t, os.Mkdir(filepath.Dir(page), 0o750))
	require.NoError(t, os.WriteFile(page, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o600))
	require.NoError(t, publish(root, "new\n"))
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, "before\n"+tableBegins+"\nnew\n\n"+tableEnds+"after\n", string(content))

	require.NoError(t, os.WriteFile(page, []byte("no tables\n"), 0o600))
	require.ErrorContains(t, publish(root, "new\n"), "update docs/parity.md: it has no line")
}
