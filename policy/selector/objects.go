package selector

import (
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Namespaces are compiled names and prefixes of namespaces. The zero Namespaces have none.
type Namespaces struct {
	every    bool
	names    []string // sorted
	prefixes []string
}

// CompileNamespaces compiles names, prefixes that end in "*", and "*". An empty list stands for
// every namespace.
func CompileNamespaces(patterns []string) Namespaces {
	n := Namespaces{every: len(patterns) == 0}
	for _, pattern := range patterns {
		prefix, open := strings.CutSuffix(pattern, "*")
		switch {
		case !open:
			n.names = append(n.names, pattern)
		case prefix == "":
			n.every = true
		default:
			n.prefixes = append(n.prefixes, prefix)
		}
	}
	slices.Sort(n.names)
	return n
}

// Has reports whether a namespace has one of the names or prefixes.
func (n *Namespaces) Has(namespace string) bool {
	if _, ok := slices.BinarySearch(n.names, namespace); ok || n.every {
		return true
	}
	for _, prefix := range n.prefixes { // a closure would be allocated
		if strings.HasPrefix(namespace, prefix) {
			return true
		}
	}
	return false
}

// maxNamespaces is the limit of the schema on the names and prefixes of namespaces.
const maxNamespaces = 256

// ValidateNamespaces returns the errors of names and prefixes of namespaces. Their texts begin with
// form, which says what is expected. The text every is the error of "*", empty if it is allowed.
func ValidateNamespaces(patterns []string, path *field.Path, form, every string) field.ErrorList {
	return ValidateTexts(patterns, maxNamespaces, path, func(pattern string) []string {
		name, open := strings.CutSuffix(pattern, "*")
		reasons := apivalidation.NameIsDNSLabel(name, open) // a prefix may end with a hyphen
		switch {
		case open && name == "" && every == "" || len(reasons) == 0:
			return nil
		case open && name == "":
			return []string{every}
		default:
			return []string{form + strings.Join(reasons, "; ")}
		}
	})
}

// CompileLabels returns the compiled selector, nil for one that selects everything. One that cannot
// be read, which ValidateLabels refuses, selects nothing.
func CompileLabels(in *metav1.LabelSelector) labels.Selector {
	if in == nil {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(in)
	switch {
	case err != nil:
		return labels.Nothing()
	case selector.Empty():
		return nil
	default:
		return selector
	}
}

// Labels returns labels that are not a nil interface.
func Labels(of labels.Labels) labels.Labels {
	if of == nil {
		return labels.Set(nil)
	}
	return of
}

// SelectsAll reports whether a selector of labels has no requirements.
func SelectsAll(in *metav1.LabelSelector) bool {
	return len(in.MatchLabels)+len(in.MatchExpressions) == 0
}

// ValidateLabels returns the errors of a selector of labels, nil for none. One without errors can
// be read.
func ValidateLabels(in *metav1.LabelSelector, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelSelector(in, metav1validation.LabelSelectorValidationOptions{}, path)
}
