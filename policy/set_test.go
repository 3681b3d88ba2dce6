package policy

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

func TestCompileSet(t *testing.T) {
	t.Parallel()
	object := func(name, uid string, generation int64) v1alpha1.GatePolicy {
		return v1alpha1.GatePolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Generation: generation}}
	}
	var compiled []string
	compile := func(p *v1alpha1.GatePolicy) (string, field.ErrorList) {
		compiled = append(compiled, p.Name)
		if p.Name == "faulty" {
			return p.Name, field.ErrorList{field.Required(field.NewPath("spec"), "")}
		}
		return p.Name, nil
	}
	next := func(previous *Set[string], list ...v1alpha1.GatePolicy) *Set[string] {
		compiled = nil
		return new(CompileSet(list, previous, ByName, compile))
	}
	first := next(&Set[string]{}, object("faulty", "2", 1), object("b", "1", 1), object("a", "", 1))
	require.Equal(t, []string{"a", "b", "faulty"}, first.Policies)
	require.Equal(t, first.Policies, compiled)
	require.Equal(t, 3, first.Len())
	require.Len(t, first.Problems(), 1)
	require.Contains(t, first.Problems(), "faulty")
	b, ok := first.ByUID("1")
	require.True(t, ok)
	require.Equal(t, "b", b)
	_, ok = first.ByUID("")
	require.False(t, ok)

	for name, tt := range map[string]struct {
		policy   v1alpha1.GatePolicy
		compiled bool
	}{
		"nothing changed":           {object("b", "1", 1), false},
		"a fault stays":             {object("faulty", "2", 1), false},
		"another generation":        {object("b", "1", 2), true},
		"created again":             {object("b", "3", 1), true},
		"another name":              {object("c", "1", 1), true},
		"not from the API server":   {object("a", "", 1), true},
		"a fault in a new revision": {object("faulty", "2", 2), true},
	} {
		set := next(first, tt.policy)
		require.Equal(t, tt.compiled, len(compiled) > 0, name)
		require.Equal(t, []string{tt.policy.Name}, set.Policies, name)
		require.Equal(t, tt.policy.Name == "faulty", len(set.Problems()) > 0, name)
	}
	require.Equal(t, 3, first.Len(), "a set does not change")
}
