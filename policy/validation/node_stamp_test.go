package validation_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

const (
	notReady    = corev1.TaintNodeNotReady + ":NoExecute"
	unreachable = corev1.TaintNodeUnreachable + ":NoExecute"
)

func TestStamp(t *testing.T) {
	t.Parallel()
	list := func(all ...corev1.Taint) []corev1.Taint { return all }
	one := func(spec string, offset ...float64) []corev1.Taint { return list(taint(t, spec, offset...)) }
	type times map[int]float64 // seconds from now, by index

	for name, tc := range map[string]struct {
		old, new  []corev1.Taint
		lifecycle bool
		// outage is since when the node has failed, in seconds from now; zero for not known.
		outage float64
		want   times
	}{
		"a taint without a time gets now":                     {new: one("a:NoExecute"), want: times{0: 0}},
		"every effect gets a time":                            {new: list(taint(t, "a:NoSchedule"), taint(t, "a:PreferNoSchedule"), taint(t, "a:New")), want: times{0: 0, 1: 0, 2: 0}},
		"TP-17 not-ready, set when the node is created":       {new: one(corev1.TaintNodeNotReady + ":NoSchedule"), want: times{0: 0}},
		"a zero time is none":                                 {new: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: &metav1.Time{}}}, want: times{0: 0}},
		"a time that is given is respected":                   {new: one("a:NoExecute", -3600)},
		"H01 a time in the future is for the validator":       {new: one("a:NoExecute", 3600)},
		"H07 a time within a second loses the fraction":       {new: one("a:NoExecute", -99.5), want: times{0: -100}},
		"a time near now is respected on a new taint":         {new: one("a:NoExecute", -3)},
		"nothing for a node without taints":                   {},
		"nothing when the taints go":                          {old: one("a:NoExecute", -10)},
		"a taint beside others":                               {old: one("a:NoExecute", -10), new: list(taint(t, "a:NoExecute", -10), taint(t, "b:NoExecute")), want: times{1: 0}},
		"H03 an old taint without a time is left alone":       {old: one("a:NoExecute"), new: list(taint(t, "a:NoExecute"), taint(t, "b:NoExecute")), want: times{1: 0}},
		"H03 an old taint without a time whose value changes": {old: one("a=1:NoExecute"), new: one("a=2:NoExecute"), want: times{0: 0}},

		"TP-18 an update of the kubelet that changes no taint":     {old: list(taint(t, "a:NoExecute"), taint(t, "b:NoSchedule", -5)), new: list(taint(t, "a:NoExecute"), taint(t, "b:NoSchedule", -5))},
		"TP-18 an update that reorders taints":                     {old: list(taint(t, "a:NoExecute"), taint(t, "b:NoSchedule", -5)), new: list(taint(t, "b:NoSchedule", -5), taint(t, "a:NoExecute"))},
		"TP-18 an update with the fraction that storage has cut":   {old: one("a:NoExecute", -50), new: one("a:NoExecute", -49.5)},
		"kubectl taint --overwrite drops the time: it comes back":  {old: one("a=1:NoExecute", -100), new: one("a=1:NoExecute"), want: times{0: -100}},
		"kubectl taint --overwrite with a new value":               {old: one("a=1:NoExecute", -100), new: one("a=2:NoExecute"), want: times{0: -100}},
		"a time in the future comes back too":                      {old: one("a=1:NoExecute", 30), new: one("a=2:NoExecute"), want: times{0: 30}},
		"another effect is another taint":                          {old: one("a:NoSchedule", -100), new: one("a:NoExecute"), want: times{0: 0}},
		"another key is another taint":                             {old: one("a:NoExecute", -100), new: one("b:NoExecute"), want: times{0: 0}},
		"removed and added in one write is a change":               {old: one("a=1:NoExecute", -100), new: list(taint(t, "b:NoExecute"), taint(t, "a=1:NoExecute")), want: times{0: 0, 1: -100}},
		"a change of the value keeps the time that it has":         {old: one("a=1:NoExecute", -100), new: one("a=2:NoExecute", -100)},
		"a client that writes its own now keeps the older time":    {old: one("a=1:NoExecute", -100), new: one("a=1:NoExecute", -1), want: times{0: -100}},
		"its clock may be 5 s ahead":                               {old: one("a=1:NoExecute", -100), new: one("a=2:NoExecute", 5), want: times{0: -100}},
		"or 5 s behind":                                            {old: one("a=1:NoExecute", -100), new: one("a=1:NoExecute", -5), want: times{0: -100}},
		"6 s is a choice":                                          {old: one("a=1:NoExecute", -100), new: one("a=1:NoExecute", -6)},
		"6 s ahead is a choice":                                    {old: one("a=1:NoExecute", -100), new: one("a=1:NoExecute", 6)},
		"a time near now, older than the old one, stands":          {old: one("a:NoExecute", 30), new: one("a:NoExecute", -1)},
		"a time near now, the old taint without one":               {old: one("a:NoExecute"), new: one("a:NoExecute", -1)},
		"a time may be moved back":                                 {old: one("a:NoExecute", -100), new: one("a:NoExecute", -200)},
		"two of a pair get the same time, and a refusal elsewhere": {old: one("a:NoExecute", -100), new: list(taint(t, "a:NoExecute"), taint(t, "a=2:NoExecute")), want: times{0: -100, 1: -100}},
		"of two of a pair that stood there the older counts":       {old: list(taint(t, "a=1:NoExecute", -1), taint(t, "a=2:NoExecute", -9)), new: one("a=3:NoExecute"), want: times{0: -9}},

		"the controller's stamp on a new taint":                          {lifecycle: true, new: one(notReady, -1)},
		"NE-07 the controller stamps again after its restart":            {lifecycle: true, old: one(notReady, -200), new: one(notReady, 0), want: times{0: -200}},
		"NE-07 and is late with it":                                      {lifecycle: true, old: one(notReady, -200), new: one(notReady, -30), want: times{0: -200}},
		"NE-07 and its clock is ahead":                                   {lifecycle: true, old: one(notReady, -200), new: one(notReady, 120), want: times{0: -200}},
		"the controller's clock is ahead, and its taint is new":          {lifecycle: true, new: one(notReady, 120), want: times{0: 0}},
		"the controller stamps what had no time":                         {lifecycle: true, old: one(notReady), new: one(notReady, -1)},
		"the controller gives no time":                                   {lifecycle: true, new: one(notReady), want: times{0: 0}},
		"a re-stamp that is late, by someone else, is a choice":          {old: one(notReady, -200), new: one(notReady, -30)},
		"NE-09 not-ready becomes unreachable, first write":               {lifecycle: true, old: one(notReady, -200), new: list(taint(t, notReady, -200), taint(t, unreachable, 0)), want: times{1: -200}},
		"NE-09 not-ready becomes unreachable, second write":              {lifecycle: true, old: list(taint(t, notReady, -200), taint(t, unreachable, -200)), new: one(unreachable, -200)},
		"NE-09 unreachable becomes not-ready":                            {lifecycle: true, old: one(unreachable, -200), new: list(taint(t, unreachable, -200), taint(t, notReady, 0)), want: times{1: -200}},
		"NE-09 the swap in one write":                                    {lifecycle: true, old: one(notReady, -200), new: one(unreachable, 0), want: times{0: -200}},
		"NE-09 both stand there, and one is stamped again":               {lifecycle: true, old: list(taint(t, notReady, -200), taint(t, unreachable, -50)), new: list(taint(t, notReady, -200), taint(t, unreachable, 0)), want: times{1: -200}},
		"NE-09 the twin has no time":                                     {lifecycle: true, old: one(notReady), new: list(taint(t, notReady), taint(t, unreachable, 0))},
		"the swap by anyone else starts anew":                            {old: one(notReady, -200), new: one(unreachable), want: times{0: 0}},
		"the swap of NoSchedule has no timers to save":                   {lifecycle: true, old: one(corev1.TaintNodeNotReady+":NoSchedule", -200), new: one(corev1.TaintNodeUnreachable+":NoSchedule", 0)},
		"NoSchedule is no twin of NoExecute":                             {lifecycle: true, old: one(corev1.TaintNodeNotReady+":NoSchedule", -200), new: one(unreachable, 0)},
		"the controller leaves the taints of others as they are":         {lifecycle: true, old: one("a:NoExecute"), new: list(taint(t, "a:NoExecute"), taint(t, notReady, 0))},
		"U6 the controller took its taint off and adds it again":         {lifecycle: true, outage: -200, new: one(notReady, 0), want: times{0: -200}},
		"U6 the other taint of the same outage":                          {lifecycle: true, outage: -200, new: one(unreachable, 0), want: times{0: -200}},
		"U6 an outage that is younger than the taint":                    {lifecycle: true, outage: -50, old: one(notReady, -200), new: one(notReady, 0), want: times{0: -200}},
		"U6 an outage is not that of another taint":                      {lifecycle: true, outage: -200, new: list(taint(t, "a:NoExecute", -1), taint(t, corev1.TaintNodeNotReady+":NoSchedule", -1))},
		"U6 an outage is nobody else's":                                  {outage: -200, new: one(notReady, -1)},
		"a time that only the controller's twin has is no one's to take": {lifecycle: true, old: one(notReady, -200), new: list(taint(t, notReady, -200), taint(t, "a:NoExecute", 0))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := validation.StampInput{Old: tc.old, New: tc.new, NodeLifecycleController: tc.lifecycle, Now: now.Add(300 * time.Millisecond)}
			if tc.outage != 0 {
				in.Outage = now.Add(time.Duration(tc.outage) * time.Second)
			}
			got := times{}
			for _, stamp := range validation.StampNode(in) {
				got[stamp.Index] = stamp.TimeAdded.Sub(now).Seconds()
			}
			if tc.want == nil {
				tc.want = times{}
			}
			require.Equal(t, tc.want, got)
		})
	}
}

func TestStampingTheOutcomeChangesNothing(t *testing.T) {
	t.Parallel()
	eachWrite(t, func(t *testing.T, r *rand.Rand, in validation.StampInput) {
		t.Helper()
		in.New = apply(in.New, validation.StampNode(in))
		require.Empty(t, validation.StampNode(in), "at the same time: %v", in)
		if slices.ContainsFunc(in.New, func(t corev1.Taint) bool { return t.TimeAdded != nil && t.TimeAdded.After(now) }) {
			return // what was a choice of the future becomes the present
		}
		in.Now = in.Now.Add(time.Duration(r.IntN(20)) * time.Second)
		require.Empty(t, validation.StampNode(in), "later: %v", in)
	})
}

func TestStampTouchesWhatIsAddedOrChanged(t *testing.T) {
	t.Parallel()
	eachWrite(t, func(t *testing.T, _ *rand.Rand, in validation.StampInput) {
		t.Helper()
		stamps := validation.StampNode(in)
		require.True(t, slices.IsSortedFunc(stamps, func(a, b validation.NodeTimeAdded) int { return a.Index - b.Index }))
		for i, got := range apply(in.New, stamps) {
			stood := slices.ContainsFunc(in.Old, func(o corev1.Taint) bool {
				return o.MatchTaint(&in.New[i]) && o.Value == in.New[i].Value && sameSecond(o.TimeAdded, in.New[i].TimeAdded)
			})
			if stood {
				require.Equal(t, in.New[i], got, "a taint that stood there: %v", in)
				continue
			}
			require.NotNil(t, got.TimeAdded)
			require.Zero(t, got.TimeAdded.Nanosecond(), "%v", in)
		}
	})
}

func sameSecond(a, b *metav1.Time) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() == b.IsZero()
	}
	return a.Unix() == b.Unix()
}

// The order of taints, old or new, is of no consequence to any of them.
func TestStampIgnoresTheOrder(t *testing.T) {
	t.Parallel()
	eachWrite(t, func(t *testing.T, r *rand.Rand, in validation.StampInput) {
		t.Helper()
		want := apply(in.New, validation.StampNode(in))
		order := r.Perm(len(in.New))
		shuffled := in
		shuffled.Old = slices.Clone(in.Old)
		slices.Reverse(shuffled.Old)
		shuffled.New = make([]corev1.Taint, len(in.New))
		for i, j := range order {
			shuffled.New[i] = in.New[j]
		}
		got := apply(shuffled.New, validation.StampNode(shuffled))
		for i, j := range order {
			require.Equal(t, want[j], got[i], "%v", in)
		}
	})
}

// Whatever the controller writes, the pods of a node do not get more time.
func TestTheControllerNeverPostpones(t *testing.T) {
	t.Parallel()
	eachWrite(t, func(t *testing.T, _ *rand.Rand, in validation.StampInput) {
		t.Helper()
		in.NodeLifecycleController = true
		stamped := apply(in.New, validation.StampNode(in))
		for _, got := range stamped {
			changed := !slices.ContainsFunc(in.Old, func(o corev1.Taint) bool { return o.MatchTaint(&got) && sameSecond(o.TimeAdded, got.TimeAdded) })
			if !changed {
				continue
			}
			require.False(t, got.TimeAdded.After(now), "%v", in)
			for _, o := range in.Old {
				if o.MatchTaint(&got) && !o.TimeAdded.IsZero() {
					require.False(t, got.TimeAdded.After(o.TimeAdded.Time), "%v became %v", in, stamped)
				}
			}
		}
	})
}

// A client that gives no time, or only its own now, postpones nothing either.
func TestAClientThatMeansNowNeverPostpones(t *testing.T) {
	t.Parallel()
	eachWrite(t, func(t *testing.T, r *rand.Rand, in validation.StampInput) {
		t.Helper()
		for i := range in.New {
			in.New[i].TimeAdded = nil
			if r.IntN(2) == 0 {
				in.New[i].TimeAdded = at(float64(r.IntN(11) - 5))
			}
		}
		for _, got := range apply(in.New, validation.StampNode(in)) {
			var first *metav1.Time
			for _, o := range in.Old {
				if o.MatchTaint(&got) && !o.TimeAdded.IsZero() && (first == nil || o.TimeAdded.Before(first)) {
					first = o.TimeAdded
				}
			}
			if first != nil && !got.TimeAdded.IsZero() && !slices.ContainsFunc(in.Old, func(o corev1.Taint) bool { return sameSecond(o.TimeAdded, got.TimeAdded) }) {
				require.False(t, got.TimeAdded.After(first.Time), "%v", in)
			}
		}
	})
}
