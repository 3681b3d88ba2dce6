package preview

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Taint is a taint on the command line. In a removal, an empty Effect matches all, and the value
// is ignored.
type Taint struct{ Key, Value, Effect string }

// String returns the taint in the syntax of the command line.
func (t Taint) String() string {
	text := t.Key
	if t.Value != "" {
		text += "=" + t.Value
	}
	if t.Effect != "" {
		text += ":" + t.Effect
	}
	return text
}

// Changes are taints to add and to remove.
type Changes struct{ Add, Remove []Taint }

// Removes reports whether a taint with that key and effect is removed.
func (c *Changes) Removes(key, effect string) bool {
	return slices.ContainsFunc(c.Remove, func(t Taint) bool { return t.Key == key && (t.Effect == "" || t.Effect == effect) })
}

// The valid effects of nodes and devices.
var (
	OfNodes   = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}
	OfDevices = []string{"None", "NoSchedule", "NoExecute"}
)

// IsTaint reports whether an argument is a taint, not the name of a node.
func IsTaint(argument string) bool {
	return strings.ContainsAny(argument, ":=") || strings.HasSuffix(argument, "-")
}

// Parse parses arguments such as key=value:NoExecute, key:NoExecute- and key-. Effects are the
// valid ones.
func Parse(arguments, effects []string) (Changes, error) {
	var changes Changes
	for _, argument := range arguments {
		text, removes := strings.CutSuffix(argument, "-")
		taint, err := parse(text, removes, effects)
		if err != nil {
			return Changes{}, fmt.Errorf("taint %q: %w", argument, err)
		}
		if removes {
			changes.Remove = append(changes.Remove, taint)
			continue
		}
		same := func(t Taint) bool { return t.Key == taint.Key && t.Effect == taint.Effect }
		if slices.ContainsFunc(changes.Add, same) {
			return Changes{}, fmt.Errorf("taint %q: there is one with that key and effect before it, want each once", argument)
		}
		changes.Add = append(changes.Add, taint)
	}
	for _, taint := range changes.Add {
		if changes.Removes(taint.Key, taint.Effect) {
			return Changes{}, fmt.Errorf("taint %q: it is to come and to go, want one of both", taint)
		}
	}
	return changes, nil
}

// ParseRemovals is Parse for removals, with or without a dash at the end.
func ParseRemovals(arguments, effects []string) ([]Taint, error) {
	taints := make([]Taint, 0, len(arguments))
	for _, argument := range arguments {
		taint, err := parse(strings.TrimSuffix(argument, "-"), true, effects)
		if err != nil {
			return nil, fmt.Errorf("taint %q: %w", argument, err)
		}
		taints = append(taints, taint)
	}
	return taints, nil
}

func parse(text string, removes bool, effects []string) (Taint, error) {
	var taint Taint
	var found bool
	text, taint.Effect, found = strings.Cut(text, ":")
	taint.Key, taint.Value, _ = strings.Cut(text, "=")
	if problems := validation.IsQualifiedName(taint.Key); len(problems) > 0 {
		return Taint{}, fmt.Errorf("key %q: %s", taint.Key, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(taint.Value); len(problems) > 0 {
		return Taint{}, fmt.Errorf("value %q: %s", taint.Value, strings.Join(problems, "; "))
	}
	if removes && !found {
		return taint, nil
	}
	if !slices.Contains(effects, taint.Effect) {
		return Taint{}, fmt.Errorf("effect is %q, want key=value:EFFECT with one of %s", taint.Effect, strings.Join(effects, ", "))
	}
	return taint, nil
}
