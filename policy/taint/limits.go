package taint

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
)

// defaultWindow is the window of a policy that came without one.
const defaultWindow = 10 * time.Minute

// Affected is how much a write would hit, counted for one policy.
type Affected struct {
	// Pods become due, or due sooner, by this write; Before are those that other
	// writes within the window hit, and Live all live pods of the cluster.
	Pods, Before, Live int
}

// Limit is a limit on affected pods that governs a write.
type Limit struct {
	Policy  string
	Actions []v1alpha1.ValidationAction
	Window  time.Duration
	// Governs reports whether the policy governs a taint.
	Governs func(Taint) bool

	by   *compiled
	note string
}

// Limits returns the limits on affected pods of the policies that govern one of the
// writes and whose matchConditions hold, by the names of the policies. To remove a
// taint is not limited. With an error, which is a fault, the limits are not all: it
// stands unless one of them refuses the write.
func (s *Set) Limits(ctx context.Context, in Input) ([]Limit, error) {
	var found []Limit
	var fault error
	for _, position := range s.candidates(in.Writes) {
		c := s.Policies[position]
		if !c.limitsPods() || !c.governsNew(&in) {
			continue
		}
		ok, note, err := c.applies(ctx, &in)
		if err != nil && fault == nil {
			fault = fmt.Errorf("judge by %s: %w", policyRef(c.name), err)
		}
		if ok && err == nil {
			found = append(found, c.limit(note))
		}
	}
	return found, fault
}

// Denies reports whether the limit can refuse a write.
func (l *Limit) Denies() bool { return l.by.denies() }

func (c *compiled) limitsPods() bool {
	return c.limits != nil && (c.limits.MaxAffectedPods != nil || c.limits.MaxAffectedPercent != nil)
}

// governsNew reports whether the policy governs a taint that the request leaves
// behind.
func (c *compiled) governsNew(in *Input) bool {
	for _, w := range c.governedIn(in) {
		if w.operation != v1alpha1.TaintRemove {
			return true
		}
	}
	return false
}

func (c *compiled) limit(note string) Limit {
	window := c.limits.Window.Duration
	if window < time.Second {
		window = defaultWindow
	}
	return Limit{Policy: c.name, Actions: c.actions, Window: window, Governs: c.governs, by: c, note: note}
}

// Exceeded returns what the limit has against it, nil if nothing. Path and value are
// those of the taint, and approve says how an approval would be written. A write that
// hits no pod is never too much, whatever others did.
func (l *Limit) Exceeded(a Affected, path *field.Path, value, approve string) *policy.Finding {
	if a.Pods == 0 {
		return nil
	}
	problem := l.problem(a)
	if problem == "" {
		return nil
	}
	return new(l.by.complete(policy.Finding{
		Reason: policy.TooManyAffected, Field: path.String(), Value: value, Problem: problem, Remedy: approve,
	}, l.note))
}

func (l *Limit) problem(a Affected) string {
	total, most, percent := a.Pods+a.Before, l.by.limits.MaxAffectedPods, l.by.limits.MaxAffectedPercent
	hit := "hits " + count(a.Pods, "pod")
	if a.Before > 0 {
		hit += ", " + strconv.Itoa(total) + " together with the " + strconv.Itoa(a.Before) + " that other writes of the last " + short(l.Window) + " hit"
	}
	switch {
	case most != nil && total > int(*most):
		return hit + "; at most " + strconv.Itoa(int(*most)) + " are allowed"
	case percent != nil && total*100 > int(*percent)*a.Live:
		if a.Before > 0 {
			hit += ","
		}
		return hit + " of " + strconv.Itoa(a.Live) + " in the cluster; at most " + strconv.Itoa(int(*percent)) + " percent are allowed"
	default:
		return ""
	}
}

// short returns a duration as people write it: 10m, not 10m0s.
func short(d time.Duration) string {
	text := d.Truncate(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
