package policy

import (
	"cmp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	rbacv1 "k8s.io/api/rbac/v1"
)

// The lengths, in bytes, at which the parts of a sentence are cut. A denial is read
// by people, and ends up in status messages, events and logs.
const (
	MaxKeyLength = 80
	Value        = 63
	Enum         = 24 // longer than any operator or effect there is
	Field        = 64
)

// maxListed is how many items of a list are named; the others are counted.
const maxListed = 5

// Short returns s on one line and no longer than longest bytes.
func Short(s string, longest int) string {
	if strings.ContainsFunc(s, Unprintable) {
		s = strings.Map(func(r rune) rune {
			if Unprintable(r) {
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

// Unprintable reports whether r could break a line or reorder what is around it.
func Unprintable(r rune) bool {
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control)
}

// ShortList joins the first few of items, each no longer than longest bytes, and counts
// the rest.
func ShortList[T ~string](items []T, separator string, longest int) string {
	var b strings.Builder
	for i, item := range items {
		if i == maxListed {
			b.WriteString(" and " + strconv.Itoa(len(items)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(cmp.Or(Short(string(item), longest), `""`))
	}
	return b.String()
}

// ShortSubjects describes subjects, such as "group sre, service account
// infra/operator".
func ShortSubjects(list []rbacv1.Subject) string {
	words := make([]string, len(list))
	for i, s := range list {
		switch s.Kind {
		case rbacv1.UserKind:
			words[i] = "user " + s.Name
		case rbacv1.GroupKind:
			words[i] = "group " + s.Name
		case rbacv1.ServiceAccountKind:
			words[i] = "service account " + s.Namespace + "/" + s.Name
		default:
			words[i] = s.Kind + " " + s.Name
		}
	}
	return ShortList(words, ", ", MaxKeyLength)
}
