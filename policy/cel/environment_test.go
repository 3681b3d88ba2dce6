package cel

import (
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what the environments hold into testdata, to be reviewed")

// environments.txt holds every function that an expression can call, and every
// variable it sees. Whoever changes it has to say that nothing in it reads a file,
// another object, a secret, the network or the clock. What asks something is
// authorizer, and nothing else.
const reviewed = "testdata/environments.txt"

func TestTheEnvironmentHoldsNothingThatWasNotReviewedD10(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for place, name := range []string{OfToleration: "of a toleration", OfTaint: "of a taint", OfRequest: "of a request"} {
		b.WriteString("# variables " + name + "\n")
		b.WriteString(strings.Join(variables(environments()[place].StoredExpressionsEnv()), "\n") + "\n\n")
	}
	b.WriteString("# functions everywhere\n")
	b.WriteString(strings.Join(calls(environments()[OfRequest].StoredExpressionsEnv()), "\n") + "\n")

	if *update {
		require.NoError(t, os.WriteFile(reviewed, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(reviewed)
	require.NoError(t, err)
	require.Equal(t, string(want), b.String())
}

func TestEveryEnvironmentHasTheSameFunctionsD10(t *testing.T) {
	t.Parallel()
	want := calls(environments()[OfRequest].StoredExpressionsEnv())
	for place := range OfRequest + 1 {
		require.Equal(t, want, calls(environments()[place].StoredExpressionsEnv()))
		require.Subset(t, want, calls(environments()[place].NewExpressionsEnv()))
	}
}

func variables(env *cel.Env) []string {
	var list []string
	for _, v := range env.Variables() {
		if v.Type().Kind() != cel.TypeType.Kind() { // names of types
			list = append(list, v.Name()+" "+v.Type().String())
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func calls(env *cel.Env) []string {
	var list []string
	functions := env.Functions()
	for _, name := range slices.Sorted(maps.Keys(functions)) {
		var overloads []string
		for _, o := range functions[name].OverloadDecls() {
			overloads = append(overloads, o.ID())
		}
		slices.Sort(overloads)
		list = append(list, name+": "+strings.Join(overloads, " "))
	}
	return list
}
