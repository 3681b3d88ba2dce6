package sidebyside

import (
	"math"
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/e2e/devices/dra"
)

// tolerated is a scenario of a pod whose claim has tolerations, and a rule.
func tolerated(name, rules string, want outcome, tolerations ...resourcev1.DeviceToleration) scenario {
	return scenario{name: name, rules: rules, want: want, play: func(s *stage) {
		s.user("a", tolerations...)
		s.begin()
		s.rule("r", drain())
	}}
}

// unlike is a scenario with another outcome where Tollgate evicts.
func unlike(s scenario, differs string, tollgate outcome) scenario {
	s.differs, s.tollgate = differs, tollgate
	return s
}

// tolerations is about which of them count, and for how long.
func tolerations() []scenario {
	atOnce := outcome{"a": leaves(0), "rule r": "False Completed"}
	inTime := outcome{"a": leaves(1), "rule r": "False Completed"}
	never := outcome{"a": stays, "rule r": "False NotStarted"}
	pending := outcome{"a": stays, "rule r": "True PodsPendingEviction"}
	anyEffect := dra.Tolerate(key)
	anyEffect.Effect = ""
	ofNoSchedule := dra.Tolerate(key)
	ofNoSchedule.Effect = noSchedule
	return []scenario{
		tolerated("a toleration for ever", "DE-23", never, dra.Tolerate(key)),
		tolerated("a toleration for some seconds", "DE-23", inTime, dra.TolerateFor(key, laterSeconds)),
		tolerated("a toleration for an hour", "DE-65, DE-66", pending, dra.TolerateFor(key, hour)),
		tolerated("two tolerations for some time each", "DE-23", inTime, dra.TolerateFor(key, hour), dra.TolerateFor(key, laterSeconds)),
		tolerated("a toleration for some seconds and one for ever", "DE-23", never, dra.TolerateFor(key, laterSeconds), dra.Tolerate(key)),
		tolerated("a toleration of every key", "DE-23", never, dra.Tolerate("")),
		tolerated("a toleration of another key", "DE-23", atOnce, dra.Tolerate("e2e.example.com/other")),
		tolerated("a toleration of another value", "DE-23, TR-11", atOnce, equal("other")),
		tolerated("a toleration of another effect", "DE-23", atOnce, ofNoSchedule),
		unlike(tolerated("a toleration of every effect", "DE-24", atOnce, anyEffect), "DE-24", never),
		tolerated("a toleration for 0 seconds", "DE-25", atOnce, dra.TolerateFor(key, 0)),
		tolerated("a toleration for -10 seconds", "DE-25", atOnce, dra.TolerateFor(key, -10)),
		unlike(tolerated("a toleration for 300 years", "DE-31", atOnce, dra.TolerateFor(key, 10_000_000_000)), "DE-31", never),
		unlike(tolerated("a toleration for as long as can be said", "DE-31", atOnce, dra.TolerateFor(key, math.MaxInt64)), "DE-31", never),
		{
			name: "two taints tolerated for different times", rules: "DE-26",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, hour), dra.TolerateFor("e2e.example.com/other", laterSeconds))
				s.begin()
				s.taint("a", drain(), dra.Taint("e2e.example.com/other", "", noExecute))
			},
			want: outcome{"a": leaves(1)},
		},
		{
			name: "two taints, one of them tolerated", rules: "DE-26",
			play: func(s *stage) {
				s.user("a", dra.Tolerate(key))
				s.begin()
				s.taint("a", drain(), dra.Taint("e2e.example.com/other", "", noExecute))
			},
			want: outcome{"a": leaves(0)},
		},
		{
			name: "the tolerations of the alternative that was chosen", rules: "DE-15",
			play: func(s *stage) {
				missing := dra.Class("missing." + s.driver)
				s.class(missing)
				s.devices("a", "a")
				s.claim(dra.FirstAvailable(dra.Claim("a", s.driver, "a", dra.TolerateFor(key, laterSeconds)), missing.Name))
				s.run(dra.Pod("a", "a"))
				s.begin()
				s.rule("r", drain())
			},
			want: inTime,
		},
	}
}

// times is about taints that are not of now.
func times() []scenario {
	return []scenario{
		{
			name: "a taint from a time to come", rules: "DE-29",
			play: func(s *stage) {
				s.user("a")
				s.begin()
				s.rule("r", drain(), since(s.in(later)))
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a taint from an hour ago, tolerated for a little more", rules: "DE-23, DE-54",
			play: func(s *stage) {
				s.user("a", dra.TolerateFor(key, hour+laterSeconds))
				s.begin()
				s.rule("r", drain(), since(s.in(-time.Hour)))
			},
			want: outcome{"a": leaves(1), "rule r": "False Completed"},
		},
		{
			name: "a pod that comes when its toleration has run out", rules: "DE-03, DE-23",
			play: func(s *stage) {
				s.begin()
				taint := drain()
				taint.TimeAdded = s.in(-time.Hour)
				s.slice(dra.Slice(s.driver, "a", dra.Device("a", taint)))
				s.claim(dra.Claim("a", s.driver, "a", dra.TolerateFor(key, 1)))
				s.create(dra.Pod("a", "a"))
			},
			want: outcome{"a": leaves(0)},
		},
	}
}
