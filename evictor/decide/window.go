package decide

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// withoutWindow returns the tolerations of a pod or of an allocation without those that were injected
// in mode Window. of converts an injected toleration to the type of the list.
func withoutWindow[T any](tolerations []T, given []v1alpha1.WindowToleration, of func(*v1alpha1.WindowToleration) T) []T {
	if len(given) == 0 {
		return tolerations
	}
	return slices.DeleteFunc(slices.Clone(tolerations), func(t T) bool {
		return slices.ContainsFunc(given, func(w v1alpha1.WindowToleration) bool { return equality.Semantic.DeepEqual(t, of(&w)) })
	})
}
