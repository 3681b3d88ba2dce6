package tracker

import (
	"slices"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// Window says which tolerations of a pod or of a claim were given to it in mode Window.
// It is shared and must not be written to. Nearly all objects have none, so they hold a
// pointer; nil is none.
type Window []v1alpha1.WindowToleration

// Tolerations returns what was given, nil for nothing.
func (w *Window) Tolerations() []v1alpha1.WindowToleration {
	if w == nil {
		return nil
	}
	return *w
}

// windowOf returns what the annotations of an object say.
func windowOf(annotations map[string]string) *Window {
	given := Window(v1alpha1.ParseWindow(annotations[v1alpha1.AnnotationWindow]))
	if len(given) == 0 {
		return nil
	}
	return &given
}

func sameWindow(a, b *Window) bool {
	return a == b || slices.Equal(a.Tolerations(), b.Tolerations())
}
