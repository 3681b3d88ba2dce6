package tolerations

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
)

// What users send is shown to them, but not at any length: a denial is read by
// people, and ends up in status messages, events and logs.
const (
	maxKey     = 80
	maxValue   = 63
	maxEnum    = 24 // longer than any operator or effect there is
	maxField   = 64
	maxRemedy  = 200
	maxFinding = 1024
	maxListed  = 5
)

// describe returns the toleration as it would be written for kubectl.
func describe(a *ask) string {
	var b strings.Builder
	if a.key != "" {
		b.WriteString("key=" + word(a.key, maxKey) + " ")
	}
	b.WriteString("operator=" + word(string(a.operator), maxEnum))
	if a.value != "" {
		b.WriteString(" value=" + word(a.value, maxValue))
	}
	if a.effect != "" {
		b.WriteString(" effect=" + word(string(a.effect), maxEnum))
	}
	if a.seconds != nil {
		b.WriteString(" for " + strconv.FormatInt(*a.seconds, 10) + "s")
	}
	if a.key == "" {
		b.WriteString(" (" + reach(a) + ")")
	}
	return b.String()
}

// reach says which taints a toleration without a key tolerates.
func reach(a *ask) string {
	switch {
	case !a.wildcard():
		return "every key"
	case a.effect == "":
		return "every taint"
	default:
		return "every taint of the effect"
	}
}

// list joins the first few of items and counts the rest.
func list[T ~string](items []T, separator string, longest int) string {
	var b strings.Builder
	for i, item := range items {
		if i == maxListed {
			b.WriteString(" and " + strconv.Itoa(len(items)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(cmp.Or(word(string(item), longest), `""`))
	}
	return b.String()
}

// word returns s on one line and no longer than longest bytes.
func word(s string, longest int) string {
	if strings.ContainsFunc(s, unprintable) {
		s = strings.Map(func(r rune) rune {
			if unprintable(r) {
				return ' '
			}
			return r
		}, s)
	}
	if len(s) <= longest {
		return s
	}
	const ellipsis = "..."
	end := max(longest-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + ellipsis
}

// unprintable reports whether r could break a line or reorder what is around it.
func unprintable(r rune) bool {
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// atMost says what a toleration must be under a grant that limits it.
func atMost(seconds int64) string {
	return "effect " + string(corev1.TaintEffectNoExecute) + " with tolerationSeconds of at most " + strconv.FormatInt(seconds, 10)
}
