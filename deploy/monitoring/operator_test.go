package monitoring

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write rules/prometheusrule.yaml")

const (
	operatorFile = "rules/prometheusrule.yaml"
	operatorHead = `# Written by make generate from tollgate.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tollgate
  namespace: tollgate-system
  labels:
    app.kubernetes.io/name: tollgate
spec:
`
)

// The rules for the operator are those of the plain file; make generate writes them anew.
func TestTheRulesForTheOperatorAreThePlainOnes(t *testing.T) {
	t.Parallel()
	_, plain, found := strings.Cut(read(t, rulesFile), "groups:\n")
	require.True(t, found)
	want := strings.Builder{}
	want.WriteString(operatorHead + "  groups:\n")
	for line := range strings.Lines(plain) {
		if line != "\n" {
			want.WriteString("  ")
		}
		want.WriteString(line)
	}
	if *update {
		require.NoError(t, os.WriteFile(operatorFile, []byte(want.String()), 0o600))
	}
	require.Equal(t, want.String(), read(t, operatorFile), "rules/prometheusrule.yaml is out of date: run make generate")
}
