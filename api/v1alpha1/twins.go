package v1alpha1

import (
	"maps"
	"slices"
	"strings"
)

// AnnotationTwins is the annotation of a node that lists the NoSchedule taints that
// Tollgate added in mode Window beside NoExecute taints. Its value is the UID of the
// node, a colon, and entries "key=value", separated by commas. Tollgate removes only
// these taints. Only Tollgate may write the annotation.
const AnnotationTwins = "tollgate.dev/twins"

// FormatTwins returns the value of AnnotationTwins for values by key.
func FormatTwins(twins map[string]string) string {
	texts := make([]string, 0, len(twins))
	for _, key := range slices.Sorted(maps.Keys(twins)) {
		texts = append(texts, key+"="+twins[key])
	}
	return strings.Join(texts, ",")
}

// ParseTwins parses the value without the UID. It skips invalid entries; their taints
// stay, as taints of other writers do.
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
