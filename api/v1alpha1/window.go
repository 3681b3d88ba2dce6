package v1alpha1

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// AnnotationWindow stands on pods and ResourceClaims that were given tolerations in
// mode Window, and says which: "key=seconds", several separated by commas. Tollgate
// evicts as if those were not there; the controllers of Kubernetes wait for them.
const AnnotationWindow = "tollgate.dev/window"

// WindowToleration is a toleration that was given in mode Window: of every value of a
// key, with the operator Exists and the effect NoExecute, for some seconds.
type WindowToleration struct {
	Key     string
	Seconds int64
}

// FormatWindow returns the value of AnnotationWindow, the same whatever the order.
func FormatWindow(given []WindowToleration) string {
	sorted := slices.Clone(given)
	slices.SortFunc(sorted, func(a, b WindowToleration) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Seconds, b.Seconds))
	})
	texts := make([]string, 0, len(sorted))
	for _, t := range slices.Compact(sorted) {
		texts = append(texts, t.Key+"="+strconv.FormatInt(t.Seconds, 10))
	}
	return strings.Join(texts, ",")
}

// ParseWindow reads what FormatWindow wrote. What cannot be read is left out: then the
// toleration stands there as if its user had chosen it.
func ParseWindow(value string) []WindowToleration {
	if value == "" {
		return nil
	}
	var given []WindowToleration
	for entry := range strings.SplitSeq(value, ",") {
		key, text, found := strings.Cut(entry, "=")
		seconds, err := strconv.ParseInt(text, 10, 64)
		if !found || key == "" || err != nil || seconds <= 0 {
			continue
		}
		given = append(given, WindowToleration{Key: key, Seconds: seconds})
	}
	return given
}
