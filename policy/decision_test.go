package policy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	with := func(actions ...v1alpha1.ValidationAction) Finding { return Finding{Actions: actions} }
	for _, test := range []struct {
		name     string
		findings []Finding
		want     Verdict
	}{
		{"nothing is found", nil, Allowed},
		{"a finding without actions denies", []Finding{with()}, Denied},
		{"one of several denies, wherever it stands", []Finding{with(v1alpha1.Warn), with(v1alpha1.Deny), with(v1alpha1.Audit)}, Denied},
		{"one action of several is Deny", []Finding{with(v1alpha1.Audit, v1alpha1.Deny)}, Denied},
		{"findings that warn or are recorded deny nothing", []Finding{with(v1alpha1.Warn), with(v1alpha1.Audit, v1alpha1.Warn)}, Allowed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			decision := Decide(test.findings)
			require.Equal(t, test.want, decision.Verdict)
			require.Len(t, decision.Findings, len(test.findings))
		})
	}
	t.Run("a decision that was never made denies", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, Denied, Decision{}.Verdict)
	})
}
