package taint

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy/vap"
)

func TestAnExportSaysThatNobodyGivesTaintsTheirTimeFirst(t *testing.T) {
	t.Parallel()
	for expression, noted := range map[string]bool{"has(taint.timeAdded)": true, "taint.key == 'a'": false} {
		p := &v1alpha1.TaintPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		p.Spec.Taints = []v1alpha1.TaintSelector{{Key: "a"}}
		p.Spec.Setters = []v1alpha1.TaintSetter{{Expression: expression}}
		exported, err := Export(p, nil, vap.DefaultSettings())
		require.NoError(t, err)
		fields := map[string]bool{}
		for _, note := range exported.Notes {
			fields[note.Field] = true
		}
		require.Equal(t, noted, fields["spec.setters"], expression)
	}
}
