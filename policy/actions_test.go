package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestActions(t *testing.T) {
	const deny, warn, audit = v1alpha1.Deny, v1alpha1.Warn, v1alpha1.Audit
	tests := map[string]struct {
		written []v1alpha1.ValidationAction
		want    []v1alpha1.ValidationAction
		faults  []string
	}{
		"none is Deny":            {nil, nil, nil},
		"one":                     {[]v1alpha1.ValidationAction{warn}, []v1alpha1.ValidationAction{warn}, nil},
		"the order is always one": {[]v1alpha1.ValidationAction{deny, audit}, []v1alpha1.ValidationAction{audit, deny}, nil},
		"one twice":               {[]v1alpha1.ValidationAction{warn, warn}, []v1alpha1.ValidationAction{warn}, []string{"FieldValueDuplicate actions[1]"}},
		"an unknown one is Deny":  {[]v1alpha1.ValidationAction{audit, "Shout"}, nil, []string{"FieldValueNotSupported actions[1]"}},
		"Deny and Warn":           {[]v1alpha1.ValidationAction{warn, deny}, []v1alpha1.ValidationAction{deny, warn}, []string{"FieldValueInvalid actions"}},
		"more than there are": {
			[]v1alpha1.ValidationAction{audit, warn, audit, audit},
			[]v1alpha1.ValidationAction{audit, warn},
			[]string{"FieldValueTooMany actions", "FieldValueDuplicate actions[2]", "FieldValueDuplicate actions[3]"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, Actions(tt.written))
			var faults []string
			for _, err := range ValidateActions(tt.written, field.NewPath("actions")) {
				faults = append(faults, string(err.Type)+" "+err.Field)
			}
			require.Equal(t, tt.faults, faults)
		})
	}
}
