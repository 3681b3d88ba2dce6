package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// comparison is what both control planes have shown.
type comparison struct {
	selected *selection
	// specs are those that ran on at least one control plane, in the order of their texts.
	specs []pair
	// leftOut is how many specs each entry of leaveOut has kept from running.
	leftOut []int
}

// pair is a spec on both control planes.
type pair struct {
	spec          string
	group         int
	without, with result
}

// regression reports whether the spec passes without Tollgate alone.
func (p *pair) regression() bool { return p.without.outcome == passed && p.with.outcome != passed }

// useless reports whether the spec compares nothing, because it fails without Tollgate.
func (p *pair) useless() bool { return p.without.outcome == failed }

// compare sets both side by side.
func compare(selected *selection, without, with *results) *comparison {
	c := &comparison{selected: selected, leftOut: make([]int, len(selected.LeaveOut))}
	texts := map[string]bool{}
	for _, side := range []*results{without, with} {
		for text := range side.ran {
			texts[text] = true
		}
	}
	for text := range texts {
		c.specs = append(c.specs, pair{spec: text, group: selected.group(text), without: without.of(text), with: with.of(text)})
	}
	slices.SortFunc(c.specs, func(a, b pair) int {
		if a.spec < b.spec {
			return -1
		}
		return 1
	})
	for _, text := range without.others {
		if i := selected.leavesOut(text); i >= 0 && selected.group(text) >= 0 {
			c.leftOut[i]++
		}
	}
	return c
}

// of returns the result of a spec. One that is missing has failed: something ended the suite.
func (r *results) of(spec string) result {
	if one, ok := r.ran[spec]; ok {
		return one
	}
	return result{outcome: failed, message: "it has not run"}
}

// select returns the specs for which is holds.
func (c *comparison) where(is func(*pair) bool) []pair {
	var found []pair
	for i := range c.specs {
		if is(&c.specs[i]) {
			found = append(found, c.specs[i])
		}
	}
	return found
}

// stale returns the entries of specs.yaml that match no spec. Entries of leaveOut are looked at only if all groups were run.
func (c *comparison) stale(all bool) []string {
	var stale []string
	for i, g := range c.selected.Groups {
		if len(c.where(func(p *pair) bool { return p.group == i })) == 0 {
			stale = append(stale, "group "+g.Name)
		}
	}
	for i, l := range c.selected.LeaveOut {
		if all && c.leftOut[i] == 0 {
			stale = append(stale, "leaveOut "+l.Name)
		}
	}
	return stale
}

// verdict prints what is not as it should be, and returns an error if that makes the command fail.
func (c *comparison) verdict(out io.Writer, all bool) error {
	var errs []error
	for _, l := range []struct {
		title string
		is    func(*pair) bool
		fails bool
	}{
		{"pass without Tollgate and not with it", (*pair).regression, true},
		{"fail without Tollgate, so that they compare nothing", (*pair).useless, true},
		{"passed only when they were tried once more (flaky)", func(p *pair) bool { return p.without.flaky || p.with.flaky }, false},
		{"skip themselves without Tollgate", func(p *pair) bool { return p.without.outcome == skipped }, false},
	} {
		found := c.where(l.is)
		if len(found) == 0 {
			continue
		}
		_, _ = fmt.Fprintf(out, "\nspecs that %s: %d\n", l.title, len(found))
		for _, p := range found {
			_, _ = fmt.Fprintf(out, "  %s\n    without Tollgate: %s\n    with Tollgate:    %s\n", p.spec, p.without, p.with)
		}
		if l.fails {
			errs = append(errs, fmt.Errorf("specs that %s: %d", l.title, len(found)))
		}
	}
	for _, name := range c.stale(all) {
		errs = append(errs, fmt.Errorf("specs.yaml: %s matches no spec", name))
	}
	return errors.Join(errs...)
}

// String says how a spec ended, and why if it did not pass at once.
func (r result) String() string {
	text := string(r.outcome)
	if r.flaky {
		text += " at the second try"
	}
	if r.message != "" {
		text += ": " + r.message
	}
	return text
}
