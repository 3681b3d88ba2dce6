package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// AnnotationTwins stands on nodes, and says which of their taints of effect NoSchedule
// were added in mode Window beside one of NoExecute: the UID of the node, a colon, and
// "key=value", several separated by commas. Tollgate removes those again, and no others.
// Nobody else may write it.
const AnnotationTwins = "tollgate.dev/twins"

// FormatTwins returns the value of AnnotationTwins for values by key.
func FormatTwins(twins map[string]string) string {
	texts := make([]string, 0, len(twins))
	for _, key := range slices.Sorted(maps.Keys(twins)) {
		texts = append(texts, key+"="+twins[key])
	}
	return strings.Join(texts, ",")
}

// ParseTwins reads what FormatTwins wrote. What cannot be read is left out: then the
// taint stays, as if somebody else had added it.
func ParseTwins(value string) map[string]string {
	if value == "" {
		return nil
	}
	twins := map[string]string{}
	for entry := range strings.SplitSeq(value, ",") {
		if key, of, found := strings.Cut(entry, "="); found && key != "" {
			twins[key] = of
		}
	}
	return twins
}
