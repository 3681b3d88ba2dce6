package tolerations

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// grant is a valid grant, read once.
type grant struct {
	// anyNamespace says that names and prefixes are not asked: the grant has
	// none, or it has "*".
	anyNamespace bool
	names        map[string]struct{}
	prefixes     []string

	// selector is nil where the grant has none.
	selector labels.Selector

	// limit is nil where the grant sets none.
	limit *int64
}

// newGrant reads a grant that ValidatePolicy found no fault with.
func newGrant(in *v1alpha1.TolerationGrant) (grant, error) {
	g := grant{anyNamespace: len(in.Namespaces) == 0}
	if in.MaxTolerationSeconds != nil {
		g.limit = new(*in.MaxTolerationSeconds)
	}
	for _, pattern := range in.Namespaces {
		prefix, open := strings.CutSuffix(pattern, "*")
		switch {
		case !open:
			if g.names == nil {
				g.names = make(map[string]struct{}, len(in.Namespaces))
			}
			g.names[pattern] = struct{}{}
		case prefix == "":
			g.anyNamespace = true
		default:
			g.prefixes = append(g.prefixes, prefix)
		}
	}
	if in.NamespaceSelector == nil {
		return g, nil
	}
	var err error
	g.selector, err = metav1.LabelSelectorAsSelector(in.NamespaceSelector)
	return g, err
}

// covers reports whether the grant is for the namespace. Labels that are not
// known (nil) satisfy no selector, not even one for the absence of a label.
func (g *grant) covers(namespace string, known map[string]string) bool {
	if !g.anyNamespace && !g.named(namespace) {
		return false
	}
	return g.selector == nil || (known != nil && g.selector.Matches(labels.Set(known)))
}

func (g *grant) named(namespace string) bool {
	if _, ok := g.names[namespace]; ok {
		return true
	}
	for _, prefix := range g.prefixes {
		if strings.HasPrefix(namespace, prefix) {
			return true
		}
	}
	return false
}

// allowance is what the grants of one policy together let a namespace do.
type allowance struct {
	granted bool
	// bounded says that NoExecute must end after at most limit seconds.
	bounded bool
	limit   int64
}

// better returns the wider of the allowance and what one more grant gives.
func (a allowance) better(limit *int64) allowance {
	switch {
	case limit == nil:
		return allowance{granted: true}
	case a.granted && !a.bounded:
		return a
	case a.granted:
		return allowance{granted: true, bounded: true, limit: max(a.limit, *limit)}
	default:
		return allowance{granted: true, bounded: true, limit: *limit}
	}
}

// grantWords says in a few words whom a grant is for.
func grantWords(in *v1alpha1.TolerationGrant) string {
	var b strings.Builder
	b.WriteString("namespaces")
	if len(in.Namespaces) > 0 {
		b.WriteString(" " + list(in.Namespaces, ", ", maxValue))
	}
	if in.NamespaceSelector != nil {
		b.WriteString(" labelled " + word(metav1.FormatLabelSelector(in.NamespaceSelector), maxKey))
	}
	if in.MaxTolerationSeconds != nil {
		b.WriteString(" (NoExecute for at most " + strconv.FormatInt(*in.MaxTolerationSeconds, 10) + "s)")
	}
	return b.String()
}
