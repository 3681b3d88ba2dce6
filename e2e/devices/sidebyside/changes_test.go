package sidebyside

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// ruleChanges is about rules that do not stay what they were.
func ruleChanges() []scenario {
	return []scenario{
		{
			name: "a rule deleted before a toleration has run out", rules: "DE-22, DE-49",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.rule("r", drain())
				s.after(soon)
				s.deleteRule("r")
			},
			want: outcome{"a": stays, "rule r": "deleted"},
		},
		{
			name: "a rule that becomes NoSchedule before a toleration has run out", rules: "DE-22, DE-72",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.rule("r", drain())
				s.after(soon)
				s.editRule("r", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Effect = noSchedule })
			},
			want: outcome{"a": stays, "rule r": "False OtherEffect"},
		},
		{
			name: "a rule that becomes None before a toleration has run out", rules: "DE-22, DE-69",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.rule("r", drain())
				s.after(soon)
				s.editRule("r", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Effect = none })
			},
			want: outcome{"a": stays, "rule r": "False NoEffect"},
		},
		{
			name: "a rule that becomes NoExecute, which is when its taint begins", rules: "DE-23, VS-03",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.rule("r", dra.Taint(key, "", none), since(s.in(-time.Hour)))
				s.editRule("r", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Effect = noExecute })
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a rule whose key is changed to one that is not tolerated", rules: "DE-37",
			play: func(s *stage) {
				s.user("a", dra.Tolerate(key))
				s.begin()
				s.rule("r", drain())
				s.after(later)
				s.editRule("r", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.Key = "e2e.example.com/other" })
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a rule whose time is moved back", rules: "DE-32",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, hour))
				s.begin()
				s.rule("r", drain())
				s.after(later)
				s.editRule("r", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.Taint.TimeAdded = s.in(-2 * time.Hour) })
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a rule that comes to select another pool", rules: "DE-22, DE-32",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.user("b", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.rule("r", drain(), selects(&resourcev1.DeviceTaintSelector{Driver: &s.driver, Pool: new("a")}))
				s.after(soon)
				s.editRule("r", func(rule *resourcev1.DeviceTaintRule) { rule.Spec.DeviceSelector.Pool = new("b") })
			},
			want: outcome{"a": stays, "b": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a rule created anew under the name of one that has evicted", rules: "DE-75",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.rule("r", drain())
				s.after(later)
				s.deleteRule("r")
				s.ruleAgain("r", drain())
			},
			want: outcome{"a": leaves(0), "rule r": "False NotStarted"},
		},
		{
			name: "two rules, one of them in time to come", rules: "DE-27, DE-68",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.rule("r", drain())
				s.rule("q", dra.Taint("e2e.example.com/other", "", noExecute), since(s.in(time.Hour)))
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed", "rule q": "False Completed"},
		},
	}
}

// sliceChanges is about slices that do not stay what they were.
func sliceChanges() []scenario {
	newer := func(s *stage, count int64, devices ...resourcev1.Device) {
		slice := dra.Slice(s.driver, "a", devices...)
		slice.Name += "-newer"
		slice.Spec.Pool.Generation, slice.Spec.Pool.ResourceSliceCount = 2, count
		s.slice(slice)
	}
	return []scenario{
		{
			name: "a taint removed from a slice before a toleration has run out", rules: "DE-22",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.taint("a", drain())
				s.after(soon)
				s.taint("a")
			},
			want: outcome{"a": stays},
		},
		{
			name: "a slice deleted before a toleration has run out", rules: "DE-22",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.taint("a", drain())
				s.after(soon)
				s.deleteSlice(s.driver + "-a")
			},
			want: outcome{"a": stays},
		},
		{
			name: "a slice of a newer generation without the taint", rules: "DE-16",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.taint("a", drain())
				s.after(soon)
				newer(s, 1, dra.Device("a"))
			},
			want: outcome{"a": stays},
		},
		{
			name: "a newer generation of which not all is there", rules: "DE-17",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.taint("a", drain())
				s.after(soon)
				newer(s, 2, dra.Device("b"))
			},
			want: outcome{"a": stays},
		},
		{
			name: "a taint in a newer generation", rules: "DE-16",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				newer(s, 1, dra.Device("a", drain()))
			},
			want: outcome{"a": leaves(0)},
		},
		{
			name: "a newer generation that goes again, before which the taint did not count", rules: "DE-18",
			play: func(s *stage) {
				s.user("a")
				newer(s, 1, dra.Device("a"))
				s.begin()
				s.taint("a", drain())
				s.after(later)
				s.deleteSlice(s.driver + "-a-newer")
			},
			want: outcome{"a": leaves(1)},
		},
		{
			name: "other devices come while a toleration runs", rules: "DE-32",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds))
				s.begin()
				s.taint("a", drain())
				s.after(soon)
				s.editSlice("a", func(slice *resourcev1.ResourceSlice) {
					slice.Spec.Devices = append(slice.Spec.Devices, dra.Device("b", drain()))
				})
			},
			want: outcome{"a": leaves(1)},
		},
		{
			name: "a taint removed and added again", rules: "DE-32, DE-44",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, laterSeconds-int64(soon/time.Second)))
				s.begin()
				s.taint("a", drain())
				s.after(soon)
				s.taint("a")
				s.taint("a", drain())
			},
			want: outcome{"a": leaves(1)},
		},
	}
}
