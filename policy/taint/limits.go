package taint

import (
	"context"
	"fmt"
	"slices"
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
	Policy string
	Window time.Duration
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
		if c.limits == nil || c.limits.MaxAffectedPods == nil && c.limits.MaxAffectedPercent == nil ||
			!slices.ContainsFunc(c.governedIn(&in), func(w governed) bool { return w.operation != v1alpha1.TaintRemove }) {
			continue
		}
		ok, note, err := c.applies(ctx, &in)
		if err != nil && fault == nil {
			fault = fmt.Errorf("judge by %s: %w", c.ref, err)
		}
		if !ok {
			continue
		}
		window := c.limits.Window.Duration
		if window < minWindow {
			window = defaultWindow
		}
		found = append(found, Limit{Policy: c.name, Window: window, Governs: c.governs, by: c, note: note})
	}
	return found, fault
}

// Denies reports whether the limit can refuse a write.
func (l *Limit) Denies() bool { return l.by.denies }

// Exceeded returns what the limit has against it, nil if nothing. Path and value are
// those of the taint, and approve says how an approval would be written. A write that
// hits no pod is never too much, whatever others did.
func (l *Limit) Exceeded(a Affected, path *field.Path, value, approve string) *policy.Finding {
	total, most, percent := a.Pods+a.Before, l.by.limits.MaxAffectedPods, l.by.limits.MaxAffectedPercent
	tooMany := most != nil && total > int(*most)
	if a.Pods == 0 || !tooMany && (percent == nil || total*100 <= int(*percent)*a.Live) {
		return nil
	}
	problem := fmt.Sprintf("hits %d pods", a.Pods)
	if a.Pods == 1 {
		problem = "hits 1 pod"
	}
	if a.Before > 0 {
		problem += fmt.Sprintf(", %d together with the %d that other writes of the last %s hit", total, a.Before, short(l.Window))
	}
	if tooMany {
		problem += fmt.Sprintf("; at most %d are allowed", *most)
	} else {
		if a.Before > 0 {
			problem += ","
		}
		problem += fmt.Sprintf(" of %d in the cluster; at most %d percent are allowed", a.Live, *percent)
	}
	return new(l.by.complete(policy.Finding{
		Reason: policy.TooManyAffected, Field: path.String(), Value: value, Problem: problem, Remedy: approve,
	}, l.note))
}

// short returns a duration as people write it: 10m, not 10m0s.
func short(d time.Duration) string {
	text := d.Truncate(time.Second).String()
	for _, end := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, end) {
			text = strings.TrimSuffix(text, end[1:])
		}
	}
	return text
}
