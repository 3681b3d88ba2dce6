package vap

import (
	"slices"
	"strconv"
	"strings"
)

// Quote returns text as CEL writes it.
func Quote(text string) string { return strconv.Quote(text) }

// List returns texts as a list in CEL.
func List[T ~string](texts []T) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = Quote(string(text))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// And returns what is true if all terms are.
func And(terms ...string) string { return join(terms, " && ", "true", "false") }

// Or returns what is true if one of the terms is.
func Or(terms ...string) string { return join(terms, " || ", "false", "true") }

// join leaves out terms that decide nothing, and all others where one decides.
func join(terms []string, operator, neutral, deciding string) string {
	terms = slices.DeleteFunc(slices.Clone(terms), func(term string) bool { return term == neutral })
	switch {
	case slices.Contains(terms, deciding):
		return deciding
	case len(terms) == 0:
		return neutral
	case len(terms) == 1:
		return terms[0]
	}
	for i, term := range terms {
		terms[i] = Enclose(term)
	}
	return strings.Join(terms, operator)
}

// Not returns what is true if the term is not.
func Not(term string) string {
	switch term {
	case "true":
		return "false"
	case "false":
		return "true"
	default:
		return "!" + Enclose(term)
	}
}

// Enclose puts a term in parentheses, so that it is one whatever stands beside it.
func Enclose(term string) string { return "(" + term + ")" }

// In returns whether a text is one of some.
func In[T ~string](text string, among []T) string {
	if len(among) == 1 {
		return text + " == " + Quote(string(among[0]))
	}
	return text + " in " + List(among)
}

// Bind returns an expression of type bool in which a name stands for a value. A line of its
// own ends a comment that the expression may end with.
func Bind(name, value, expression string) string {
	return "[" + value + "].exists(" + name + ", " + expression + ")"
}

// BindText is Bind for an expression of type string.
func BindText(name, value, expression string) string {
	return "[" + value + "].map(" + name + ", " + expression + ")[0]"
}

// Lines encloses an expression of a user.
func Lines(expression string) string { return "(\n" + expression + "\n)" }
