package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// written returns the path of a report with the specs in it.
func written(t *testing.T, specs ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "e2e.json")
	require.NoError(t, os.WriteFile(path, []byte(`[{"SpecReports": [`+strings.Join(specs, ",")+`]}]`), 0o600))
	return path
}

// Reports of specs, with the fields that ginkgo writes for each state.
const (
	setUp    = `{"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed", "NumAttempts": 1}`
	brokeUp  = `{"LeafNodeType": "SynchronizedBeforeSuite", "State": "failed", "NumAttempts": 1, "Failure": {"Message": "no node is ready"}}`
	plain    = `{"ContainerHierarchyTexts": ["[sig-node] Taints", "of one pod"], "LeafNodeType": "It", "LeafNodeText": "evicts", "State": "passed", "NumAttempts": 1}`
	broken   = `{"ContainerHierarchyTexts": ["[sig-node] Taints"], "LeafNodeType": "It", "LeafNodeText": "evicts", "State": "failed", "NumAttempts": 2, "Failure": {"Message": "the pod\n  is still there"}}`
	late     = `{"ContainerHierarchyTexts": ["[sig-node] Taints"], "LeafNodeType": "It", "LeafNodeText": "evicts", "State": "timedout", "NumAttempts": 1, "Failure": {"Message": "too late"}}`
	second   = `{"ContainerHierarchyTexts": ["[sig-node] Taints"], "LeafNodeType": "It", "LeafNodeText": "evicts", "State": "passed", "NumAttempts": 2, "AdditionalFailures": [{"State": "failed", "Failure": {"Message": "the first try"}}]}`
	itself   = `{"ContainerHierarchyTexts": ["[sig-node] Taints"], "LeafNodeType": "It", "LeafNodeText": "evicts", "State": "skipped", "NumAttempts": 1, "Failure": {"Message": "needs two zones"}}`
	unasked  = `{"ContainerHierarchyTexts": ["[sig-node] Taints"], "LeafNodeType": "It", "LeafNodeText": "is not asked for", "State": "skipped", "NumAttempts": 0}`
	tookDown = `{"ContainerHierarchyTexts": ["[sig-node] Taints"], "LeafNodeType": "It", "LeafNodeText": "evicts", "State": "interrupted", "NumAttempts": 0}`
)

func TestAReportSaysHowEachSpecEnded(t *testing.T) {
	t.Parallel()
	const spec = "[sig-node] Taints evicts"
	for name, tt := range map[string]struct {
		specs []string
		spec  string
		want  result
	}{
		"a spec that passed has the text of all its containers": {
			specs: []string{setUp, plain}, spec: "[sig-node] Taints of one pod evicts", want: result{outcome: passed},
		},
		"a failure is told in one line": {
			specs: []string{broken}, spec: spec, want: result{outcome: failed, message: "failed: the pod is still there"},
		},
		"what took too long has failed":         {specs: []string{late}, spec: spec, want: result{outcome: failed, message: "timedout: too late"}},
		"what was interrupted has failed":       {specs: []string{tookDown}, spec: spec, want: result{outcome: failed, message: "interrupted:"}},
		"a second try that passed is flaky":     {specs: []string{second}, spec: spec, want: result{outcome: passed, flaky: true, message: "the first try"}},
		"a spec may skip itself":                {specs: []string{itself}, spec: spec, want: result{outcome: skipped, message: "needs two zones"}},
		"of two with one text, the worse":       {specs: []string{second, broken}, spec: spec, want: result{outcome: failed, message: "failed: the pod is still there"}},
		"of two with one text, in either order": {specs: []string{broken, second}, spec: spec, want: result{outcome: failed, message: "failed: the pod is still there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readReport(written(t, tt.specs...))
			require.NoError(t, err)
			require.Equal(t, map[string]result{tt.spec: tt.want}, got.ran)
		})
	}
}

func TestAReportNamesTheSpecsThatWereNotSelected(t *testing.T) {
	t.Parallel()
	got, err := readReport(written(t, plain, unasked))
	require.NoError(t, err)
	require.Equal(t, []string{"[sig-node] Taints is not asked for"}, got.others)
	require.Len(t, got.ran, 1)
}

func TestAReportOfNothingIsAnError(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		specs []string
		err   string
	}{
		"the suite was not set up":     {specs: []string{brokeUp, unasked}, err: "SynchronizedBeforeSuite of the suite fails: failed: no node is ready"},
		"no spec was selected":         {specs: []string{setUp, unasked}, err: "read report of the specs: none has run"},
		"there is no spec in the file": {err: "read report of the specs: none has run"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := readReport(written(t, tt.specs...))
			require.EqualError(t, err, tt.err)
		})
	}
	_, err := readReport(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestALongFailureIsCutOff(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("ä", lineLength)+"...", line(strings.Repeat("ä", lineLength+1)))
	require.Equal(t, strings.Repeat("ä", lineLength), line(strings.Repeat("ä", lineLength)))
}
