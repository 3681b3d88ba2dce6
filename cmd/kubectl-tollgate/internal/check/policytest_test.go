package check

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	configv1alpha1 "github.com/tollgate-dev/tollgate/api/config/v1alpha1"
)

// readOne reads the one test in a text.
func readOne(t *testing.T, text string) (*Test, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "test.yaml")
	require.NoError(t, os.WriteFile(file, []byte("apiVersion: config.tollgate.dev/v1alpha1\nkind: PolicyTest\n"+text), 0o600))
	tests, err := readTests([]string{file})
	if err != nil {
		return nil, err
	}
	require.Len(t, tests, 1)
	return tests[0], nil
}

func options() Options {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	return Options{Config: configv1alpha1.Default(), Clock: clocktesting.NewFakePassiveClock(now)}
}

func TestTestsThatCannotBeReadSayWhy(t *testing.T) {
	t.Parallel()
	const pod = "object: {apiVersion: v1, kind: Pod, metadata: {name: a}}"
	for sentence, c := range map[string]struct{ text, want string }{
		"no name":              {"cases: [{name: a, " + pod + ", expect: allowed}]", "metadata.name: a test has to have a name"},
		"no cases":             {"metadata: {name: t}", "cases: there are none"},
		"a case without one":   {"metadata: {name: t}\ncases: [{" + pod + ", expect: allowed}]", "cases[0]: name: a case has to have a name"},
		"no object":            {"metadata: {name: t}\ncases: [{name: a, expect: allowed}]", "cases[0]: give either object or manifest"},
		"two":                  {"metadata: {name: t}\ncases: [{name: a, manifest: b, " + pod + ", expect: allowed}]", "give either object or manifest"},
		"another expectation":  {"metadata: {name: t}\ncases: [{name: a, " + pod + ", expect: refused}]", `expect is "refused", want allowed, warned or denied`},
		"no use for undecided": {"metadata: {name: t}\ncases: [{name: a, " + pod + ", expect: undecided}]", `expect is "undecided"`},
		"an unknown field":     {"metadata: {name: t}\ncases: [{name: a, " + pod + ", expects: allowed}]", `unknown field "cases[0].expects"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := readOne(t, c.text)
			require.ErrorContains(t, err, "test.yaml:1: ")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestTestsThatCannotBeRunSayWhy(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct{ text, want string }{
		"a policy that is not there": {"policies: [none]\ncases: [{name: a, object: {apiVersion: v1, kind: Pod}, expect: allowed}]", "no such file"},
		"what there is besides":      {"manifests: [none]\ncases: [{name: a, object: {apiVersion: v1, kind: Pod}, expect: allowed}]", "no such file"},
		"no object":                  {"cases: [{name: a, object: {kind: Pod}, expect: allowed}]", `case "a": object: apiVersion and kind have to be given`},
		"no manifest":                {"cases: [{name: a, manifest: none, expect: allowed}]", "no such file"},
		"nothing to judge":           {"cases: [{name: a, object: {apiVersion: v1, kind: Service}, expect: allowed}]", "none of the objects is of a kind"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			test, err := readOne(t, "metadata: {name: t}\n"+c.text)
			require.NoError(t, err)
			_, err = test.Run(t.Context(), options())
			require.ErrorContains(t, err, "PolicyTest t: ")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestAllObjectsOfAManifestHaveToComeOutAsExpected(t *testing.T) {
	t.Parallel()
	test, err := readOne(t, "metadata: {name: t}\nnamespace: apple\npolicies: [policy.yaml]\ncases: [{name: a, manifest: two.yaml, expect: denied}]")
	require.NoError(t, err)
	dir := filepath.Dir(test.position.File)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(
		"{apiVersion: tollgate.dev/v1alpha1, kind: TolerationPolicy, metadata: {name: d}, spec: {taints: [{key: d}]}}"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "two.yaml"), []byte(
		"{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {tolerations: [{key: d}]}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: two}}\n"), 0o600))
	outcomes, err := test.Run(t.Context(), options())
	require.NoError(t, err)
	require.Len(t, outcomes, 2)
	require.Empty(t, outcomes[0].Failure)
	require.Equal(t, "a (Pod apple/two)", outcomes[1].Name)
	require.Equal(t, "Pod apple/two is allowed, expected denied", outcomes[1].Failure)
}
