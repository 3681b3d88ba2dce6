package validation_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestValidateNode(t *testing.T) {
	t.Parallel()
	list := func(all ...corev1.Taint) []corev1.Taint { return all }
	one := func(spec string, offset ...float64) []corev1.Taint { return list(taint(t, spec, offset...)) }
	bad := list(taint(t, "no key=no value:"), taint(t, "a:NoExecute", 3600), taint(t, "a:NoExecute", 3600))

	for name, tc := range map[string]struct {
		old, new []corev1.Taint
		anyTime  bool
		want     []string
	}{
		"AV-21 taints of every effect":                    {new: list(taint(t, "a=1:NoSchedule"), taint(t, "a=1:PreferNoSchedule"), taint(t, "example.com/a:NoExecute", -5))},
		"AV-21 a taint without a key":                     {new: one("=v:NoExecute"), want: []string{"Required value spec.taints[0].key"}},
		"AV-21 a key that is no label name":               {new: list(taint(t, "a:NoExecute"), taint(t, "no key:NoExecute")), want: []string{"Invalid value spec.taints[1].key"}},
		"AV-21 a value that is no label value":            {new: one("a=-:NoExecute"), want: []string{"Invalid value spec.taints[0].value"}},
		"AV-21 a taint without an effect":                 {new: one("a=1"), want: []string{"Required value spec.taints[0].effect"}},
		"AV-21 an effect that a later version may know":   {new: one("a:NoScheduleNoAdmit")},
		"AV-21 two taints with one key and effect":        {new: list(taint(t, "a=1:NoExecute"), taint(t, "b:NoExecute"), taint(t, "a=2:NoExecute")), want: []string{"Duplicate value spec.taints[2]"}},
		"AV-21 a third one is reported too":               {new: list(taint(t, "a:NoExecute"), taint(t, "a:NoExecute"), taint(t, "a:NoExecute")), want: []string{"Duplicate value spec.taints[1]", "Duplicate value spec.taints[2]"}},
		"AV-21 one more of what stood there":              {old: one("a:NoExecute"), new: list(taint(t, "a:NoExecute"), taint(t, "a:NoExecute")), want: []string{"Duplicate value spec.taints[1]"}},
		"AV-22 a thousand taints":                         {new: thousand(t)},
		"H01 a time within the skew":                      {new: one("a:NoExecute", 60)},
		"H01 a time beyond the skew":                      {new: one("a:NoSchedule", 61), want: []string{"Invalid value spec.taints[0].timeAdded"}},
		"H01 a time in ten years":                         {new: one("a:NoExecute", 315_360_000), want: []string{"Invalid value spec.taints[0].timeAdded"}},
		"H01 a time in ten years where any is allowed":    {new: one("a:NoExecute", 315_360_000), anyTime: true},
		"H01 a time is moved into the future":             {old: one("a:NoExecute", -100), new: one("a:NoExecute", 3600), want: []string{"Invalid value spec.taints[0].timeAdded"}},
		"H02 a time in the past":                          {new: one("a:NoExecute", -315_360_000)},
		"H03 no time":                                     {new: one("a:NoExecute")},
		"a time in the future that stood there":           {old: one("a=1:NoExecute", 3600), new: one("a=2:NoExecute", 3600)},
		"the time of another taint is no excuse":          {old: one("b:NoExecute", 3600), new: one("a:NoExecute", 3600), want: []string{"Invalid value spec.taints[0].timeAdded"}},
		"what stood there is not judged again":            {old: bad, new: bad},
		"nor when a taint joins it":                       {old: bad, new: append(list(taint(t, "b:NoExecute")), bad...)},
		"a change of what stood there is judged":          {old: one("no key=1:NoExecute"), new: one("no key=2:NoExecute"), want: []string{"Invalid value spec.taints[0].key"}},
		"one taint with every fault has one error each":   {new: one("no key=-:", 3600), want: []string{"Invalid value spec.taints[0].key", "Invalid value spec.taints[0].value", "Required value spec.taints[0].effect", "Invalid value spec.taints[0].timeAdded"}},
		"AV-21 one key with two effects, one of them new": {old: one("a:NoExecute"), new: list(taint(t, "a:NoExecute"), taint(t, "a:NoSchedule"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			maxSkew := time.Minute
			if tc.anyTime {
				maxSkew = -1
			}
			require.Equal(t, tc.want, kinds(validation.ValidateNode(tc.new, tc.old, now, maxSkew)))
		})
	}
}

func kinds(errs field.ErrorList) []string {
	var out []string
	for _, err := range errs {
		out = append(out, err.Type.String()+" "+err.Field)
	}
	return out
}

func thousand(t *testing.T) []corev1.Taint {
	t.Helper()
	var list []corev1.Taint
	for i := range 1_000 {
		list = append(list, taint(t, fmt.Sprintf("key-%d:NoSchedule", i)))
	}
	return list
}

func TestARefusalSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	errs := validation.ValidateNode([]corev1.Taint{taint(t, "gpu=broken:NoExecute", 3600), taint(t, "gpu=fine:NoExecute")}, nil, now, time.Minute)
	require.Len(t, errs, 2)
	require.Equal(t, `spec.taints[0].timeAdded: Invalid value: "2026-11-20T13:00:00Z": is more than 1m0s ahead of 2026-11-20T12:00:00Z: leave it out to have it set to the present`, errs[0].Error())
	require.Equal(t, `spec.taints[1]: Duplicate value: "gpu=fine:NoExecute": another taint has this key and effect: a node has one of each`, errs[1].Error())
}

func TestANodeHasAtMostAThousandTaints(t *testing.T) {
	t.Parallel()
	many := make([]corev1.Taint, 1002)
	tests := map[string]struct {
		now, old int
		refused  bool
	}{
		"as many as there may be":          {1000, 0, false},
		"one more":                         {1001, 0, true},
		"one more than there were":         {1001, 1000, true},
		"too many already, and one more":   {1002, 1001, true},
		"too many already, and as many":    {1001, 1001, false},
		"too many already, and one is off": {1001, 1002, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs := validation.ValidateNodeCount(many[:tt.now], many[:tt.old])
			require.Equal(t, tt.refused, len(errs) > 0)
			for _, err := range errs {
				require.EqualError(t, err, fmt.Sprintf("spec.taints: Too many: %d: must have at most 1000 items", tt.now))
			}
		})
	}
}

// What Stamp makes of times up to now is never refused for its time, and nothing the
// node lifecycle controller writes is, however wrong its clock.
func TestWhatIsStampedIsNotRefusedForItsTime(t *testing.T) {
	t.Parallel()
	eachWrite(t, func(t *testing.T, _ *rand.Rand, in validation.StampInput) {
		t.Helper()
		for i := range in.New {
			if !in.NodeLifecycleController && in.New[i].TimeAdded != nil && in.New[i].TimeAdded.After(now) {
				in.New[i].TimeAdded = nil
			}
		}
		for _, err := range validation.ValidateNode(apply(in.New, validation.StampNode(in)), in.Old, in.Now, 0) {
			require.NotContains(t, err.Field, "timeAdded", "%v", in)
		}
	})
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	list := func(all ...corev1.Taint) []corev1.Taint { return all }
	one := func(spec string, offset ...float64) []corev1.Taint { return list(taint(t, spec, offset...)) }
	for name, tc := range map[string]struct {
		old, new []corev1.Taint
		want     int
	}{
		"H02 an added taint that began long ago":                {new: one("a:NoExecute", -3600), want: 1},
		"H02 two of them":                                       {new: list(taint(t, "a:NoExecute", -3600), taint(t, "b:NoExecute", -3600)), want: 2},
		"H02 a time that is moved back":                         {old: one("a:NoExecute", -100), new: one("a:NoExecute", -3600), want: 1},
		"H02 a time where none was":                             {old: one("a:NoExecute"), new: one("a:NoExecute", -3600), want: 1},
		"H02 a minute is no news":                               {new: one("a:NoExecute", -60)},
		"H02 more than a minute is":                             {new: one("a:NoExecute", -61), want: 1},
		"H02 no pod leaves for NoSchedule":                      {new: one("a:NoSchedule", -3600)},
		"H02 a taint without a time":                            {new: one("a:NoExecute")},
		"H02 a taint that stood there":                          {old: one("a:NoExecute", -3600), new: list(taint(t, "a:NoExecute", -3600), taint(t, "b:NoExecute"))},
		"H02 a new value for a taint that stood there":          {old: one("a=1:NoExecute", -3600), new: one("a=2:NoExecute", -3600)},
		"H02 a time that is moved forward, still in the past":   {old: one("a:NoExecute", -3600), new: one("a:NoExecute", -100)},
		"NE-09 a time that comes from the controller's twin":    {old: one(notReady, -3600), new: one(unreachable, -3600)},
		"NE-09 a time that is older than the controller's twin": {old: one(notReady, -100), new: one(unreachable, -3600), want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Len(t, validation.NodeWarnings(tc.new, tc.old, now), tc.want)
		})
	}
	require.Equal(t, []string{
		"spec.taints[0]: gpu=broken:NoExecute has been there for 1h0m0s by its timeAdded 2026-11-20T11:00:00Z: pods that tolerate it for a while may be due at once",
	}, validation.NodeWarnings(one("gpu=broken:NoExecute", -3600), nil, now))
}
