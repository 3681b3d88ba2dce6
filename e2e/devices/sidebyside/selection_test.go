package sidebyside

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// selection is about which devices are tainted.
func selection() []scenario {
	return []scenario{
		{
			name: "a rule for a driver", rules: "DE-19, DE-39, DE-67",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(0), "rule r": "False Completed"},
		},
		{
			name: "a taint in a slice", rules: "DE-16",
			play: func(s *stage) {
				s.user("a")
				s.user("b")
				s.begin()
				s.taint("a", drain())
			},
			want: outcome{"a": leaves(0), "b": stays},
		},
		{
			name: "a rule for a pool", rules: "DE-20",
			play: func(s *stage) {
				s.user("a")
				s.user("b")
				s.begin()
				s.rule("r", drain(), selects(&resourcev1.DeviceTaintSelector{Pool: new("a"), Driver: &s.driver}))
			},
			want: outcome{"a": leaves(0), "b": stays, "rule r": "False Completed"},
		},
		{
			name: "a rule for a device, of which two pools have one", rules: "DE-20",
			play: func(s *stage) {
				s.devices("east", "a")
				s.devices("west", "a")
				s.user("b")
				s.claim(dra.Claim("first", s.driver, "a"))
				s.claim(dra.Claim("second", s.driver, "a"))
				s.run(dra.Pod("first", "first"), dra.Pod("second", "second"))
				s.begin()
				s.rule("r", drain(), selects(&resourcev1.DeviceTaintSelector{Driver: &s.driver, Device: new("a")}))
			},
			want: outcome{"first": leaves(0), "second": leaves(0), "b": stays, "rule r": "False Completed"},
		},
		{
			name: "a rule without a selector", rules: "DE-20",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.rule("r", drain(), selects(nil))
			},
			want: outcome{"a": stays, "rule r": "False NotStarted"},
		},
		{
			name: "a rule with an empty selector", rules: "DE-20", alone: true,
			play: func(s *stage) {
				s.user("a")
				s.begin()
				// A key that nobody tolerates: others are still about.
				s.rule("r", dra.Taint("e2e.example.com/everywhere", "", noExecute), selects(&resourcev1.DeviceTaintSelector{}))
			},
			want: outcome{"a": leaves(0), "rule r": "False Completed"},
		},
		{
			name: "a rule for another driver", rules: "DE-67",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.rule("r", drain(), selects(&resourcev1.DeviceTaintSelector{Driver: new("other." + s.driver)}))
			},
			want: outcome{"a": stays, "rule r": "False NotStarted"},
		},
		{
			name: "a rule for a device whose slice is gone", rules: "DE-19",
			play: func(s *stage) {
				s.user("a")
				s.deleteSlice(s.driver + "-a")
				s.begin()
				s.rule("r", drain())
			},
			want: outcome{"a": leaves(0), "rule r": "False Completed"},
		},
	}
}

// effects is about which taints evict.
func effects() []scenario {
	return []scenario{
		{
			name: "a rule with effect NoSchedule", rules: "DE-02, DE-72",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.rule("r", dra.Taint(key, "", noSchedule))
			},
			want: outcome{"a": stays, "rule r": "False OtherEffect"},
		},
		{
			name: "a rule with effect None", rules: "DE-02, DE-69",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.rule("r", dra.Taint(key, "", none))
			},
			want: outcome{"a": stays, "rule r": "False NoEffect"},
		},
		{
			name: "taints with effects None and NoSchedule in a slice", rules: "DE-02",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.taint("a", dra.Taint(key, "", none), dra.Taint(key, "", noSchedule))
			},
			want: outcome{"a": stays},
		},
		{
			name: "the same key with two effects, the one that evicts tolerated", rules: "DE-21",
			play: func(s *stage) {
				s.user("a", dra.Tolerate(key))
				s.begin()
				s.taint("a", drain(), dra.Taint(key, "", noSchedule))
			},
			want: outcome{"a": stays},
		},
		{
			name: "the same key and effect twice, with two values, one tolerated", rules: "DE-21, DE-26",
			play: func(s *stage) {
				s.user("a", equal("tolerated"))
				s.begin()
				s.taint("a", dra.Taint(key, "tolerated", noExecute), dra.Taint(key, "other", noExecute))
			},
			want: outcome{"a": leaves(0)},
		},
		{
			name: "two rules of the same key, one tolerated", rules: "DE-21, DE-67",
			play: func(s *stage) {
				s.user("a", equal("tolerated"))
				s.begin()
				s.rule("r", dra.Taint(key, "tolerated", noExecute))
				s.rule("q", dra.Taint(key, "other", noExecute))
			},
			want: outcome{"a": leaves(0), "rule r": "False NotStarted", "rule q": "False Completed"},
		},
	}
}

// equal tolerates taints with one value.
func equal(value string) resourcev1.DeviceToleration {
	return resourcev1.DeviceToleration{
		Key: key, Operator: resourcev1.DeviceTolerationOpEqual, Value: value, Effect: noExecute,
	}
}
