package validation_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

var requestsPath = field.NewPath("spec", "devices", "requests")

type toleration = resourcev1.DeviceToleration

func exactly(all ...toleration) []resourcev1.DeviceRequest {
	return []resourcev1.DeviceRequest{{Exactly: &resourcev1.ExactDeviceRequest{Tolerations: all}}}
}

// firstAvailable is a request with alternatives.
func firstAvailable(lists ...[]toleration) resourcev1.DeviceRequest {
	var r resourcev1.DeviceRequest
	for _, all := range lists {
		r.FirstAvailable = append(r.FirstAvailable, resourcev1.DeviceSubRequest{Tolerations: all})
	}
	return r
}

func repeated(n int, t toleration) []toleration {
	list := make([]toleration, n)
	for i := range list {
		list[i] = t
	}
	return list
}

func TestValidateTolerations(t *testing.T) {
	t.Parallel()
	const one = "spec.devices.requests[0].exactly.tolerations[0]"
	fine := toleration{Key: "example.com/k", Operator: "Equal", Value: "v", Effect: "NoExecute", TolerationSeconds: new(int64(60))}
	bad := exactly(toleration{Key: "no key", Operator: "Lt", Value: "-", Effect: "x"})

	for name, tc := range map[string]struct {
		old, new []resourcev1.DeviceRequest
		want     []string
	}{
		"no requests": {},
		"AV-09 a key, a value, an effect and seconds": {new: exactly(fine)},
		"AV-09 a key that exists":                     {new: exactly(toleration{Key: "k", Operator: "Exists"})},
		"AV-09 every taint":                           {new: exactly(toleration{Operator: "Exists"})},
		"AV-09 Equal is the default":                  {new: exactly(toleration{Key: "k"})},
		"AV-09 each effect":                           {new: exactly(toleration{Key: "k", Effect: "None"}, toleration{Key: "k", Effect: "NoSchedule"}, toleration{Key: "k", Effect: "NoExecute"})},
		"AV-09 a key that is none":                    {new: exactly(toleration{Key: "no key", Operator: "Exists"}), want: []string{"Invalid value " + one + ".key"}},
		"AV-09 Exists with a value":                   {new: exactly(toleration{Key: "k", Operator: "Exists", Value: "v"}), want: []string{"Invalid value " + one + ".value"}},
		"AV-09 a value that is none":                  {new: exactly(toleration{Key: "k", Operator: "Equal", Value: "-"}), want: []string{"Invalid value " + one + ".value"}},
		"AV-09 an operator of nodes":                  {new: exactly(toleration{Key: "k", Operator: "Lt", Value: "1"})},
		"AV-09 an effect of nodes":                    {new: exactly(toleration{Key: "k", Effect: "PreferNoSchedule"})},
		"AV-10 the path in a subrequest":              {new: []resourcev1.DeviceRequest{{}, firstAvailable(nil, []toleration{fine, {Key: "no key"}})}, want: []string{"Invalid value spec.devices.requests[1].firstAvailable[1].tolerations[1].key"}},
		"AV-11 16 tolerations":                        {new: exactly(repeated(16, fine)...)},
		"AV-11 17 tolerations":                        {new: exactly(repeated(17, fine)...), want: []string{"Too many spec.devices.requests[0].exactly.tolerations"}},
		"AV-11 17 tolerations in a subrequest":        {new: []resourcev1.DeviceRequest{firstAvailable(repeated(16, fine), repeated(17, fine))}, want: []string{"Too many spec.devices.requests[0].firstAvailable[1].tolerations"}},
		"AV-11 16 in each of two requests":            {new: append(exactly(repeated(16, fine)...), exactly(repeated(16, fine)...)...)},
		"AV-11 a bad one among too many":              {new: append(exactly(repeated(17, bad[0].Exactly.Tolerations[0])...), bad[0]), want: []string{"Too many spec.devices.requests[0].exactly.tolerations", "Invalid value spec.devices.requests[1].exactly.tolerations[0].key"}},
		"AV-12 an empty key with Equal":               {new: exactly(toleration{Operator: "Equal", Value: "v"}), want: []string{"Invalid value " + one + ".operator"}},
		"AV-12 an empty key with no operator":         {new: exactly(toleration{}), want: []string{"Invalid value " + one + ".operator"}},
		"AV-12 seconds with any effect":               {new: exactly(toleration{Key: "k", TolerationSeconds: new(int64(1))}, toleration{Key: "k", Effect: "NoSchedule", TolerationSeconds: new(int64(-1))})},
		"duplicates":                                  {new: exactly(fine, fine)},
		"AV-13 what stood there":                      {old: bad, new: bad},
		"AV-13 too many that stood there":             {old: exactly(repeated(17, fine)...), new: exactly(repeated(17, fine)...)},
		"AV-13 a change, were it possible, is judged": {old: exactly(fine), new: bad, want: []string{"Invalid value " + one + ".key"}},
		"AV-13 so are seconds where were none":        {old: exactly(toleration{Key: "no key"}), new: exactly(toleration{Key: "no key", TolerationSeconds: new(int64(1))}), want: []string{"Invalid value " + one + ".key"}},
		"AV-13 so are other seconds":                  {old: exactly(toleration{Key: "no key", TolerationSeconds: new(int64(2))}), new: exactly(toleration{Key: "no key", TolerationSeconds: new(int64(1))}), want: []string{"Invalid value " + one + ".key"}},
		"AV-13 so is a toleration of a subrequest":    {old: []resourcev1.DeviceRequest{firstAvailable(nil)}, new: []resourcev1.DeviceRequest{firstAvailable([]toleration{{Key: "no key"}})}, want: []string{"Invalid value spec.devices.requests[0].firstAvailable[0].tolerations[0].key"}},
		"AV-13 equal seconds behind other pointers":   {old: exactly(toleration{Key: "no key", TolerationSeconds: new(int64(1))}), new: exactly(toleration{Key: "no key", TolerationSeconds: new(int64(1))})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			errs, documented := validation.ValidateTolerations(tc.new, tc.old, requestsPath)
			require.Equal(t, tc.want, append(deviceKinds(documented), deviceKinds(errs)...))
			if strings.HasPrefix(name, "AV-09 ") {
				require.Empty(t, documented)
			}
			if strings.HasPrefix(name, "AV-12 ") {
				require.Empty(t, errs)
			}
		})
	}
}

func TestTolerationWarnings(t *testing.T) {
	t.Parallel()
	const one = "spec.devices.requests[0].exactly.tolerations[0].tolerationSeconds: is ignored "
	seconds := func(effect resourcev1.DeviceTaintEffect) toleration {
		return toleration{Key: "k", Effect: effect, TolerationSeconds: new(int64(60))}
	}
	for name, tc := range map[string]struct {
		old, new []resourcev1.DeviceRequest
		want     []string
	}{
		"seconds with NoExecute":          {new: exactly(seconds("NoExecute"))},
		"AV-12 seconds with NoSchedule":   {new: exactly(seconds("NoSchedule")), want: []string{one + "with effect NoSchedule: only tolerations with effect NoExecute end"}},
		"AV-12 seconds with None":         {new: exactly(seconds("None")), want: []string{one + "with effect None: only tolerations with effect NoExecute end"}},
		"DE-24 seconds without an effect": {new: exactly(seconds("")), want: []string{one + "without effect NoExecute: what has no effect tolerates every effect, for ever"}},
		"no seconds":                      {new: exactly(toleration{Key: "k"})},
		"the same is said once":           {new: exactly(seconds(""), seconds(""), seconds("NoSchedule")), want: []string{one + "without effect NoExecute: what has no effect tolerates every effect, for ever", "spec.devices.requests[0].exactly.tolerations[2].tolerationSeconds: is ignored with effect NoSchedule: only tolerations with effect NoExecute end"}},
		"what stood there":                {old: exactly(seconds("")), new: exactly(seconds(""))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, validation.TolerationWarnings(tc.new, tc.old, requestsPath))
		})
	}
}

func TestWhatIsNotKnownOfATolerationIsFound(t *testing.T) {
	t.Parallel()
	path := field.NewPath("tolerations").Index(0)
	for name, tt := range map[string]struct {
		toleration toleration
		want       []string
	}{
		"nothing but a key":    {toleration{Key: "k"}, nil},
		"all known":            {toleration{Key: "k", Operator: "Exists", Effect: "NoExecute"}, nil},
		"an operator of nodes": {toleration{Key: "k", Operator: "Lt", Value: "1"}, []string{"Unsupported value tolerations[0].operator"}},
		"an effect of nodes":   {toleration{Key: "k", Effect: "PreferNoSchedule"}, []string{"Unsupported value tolerations[0].effect"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, deviceKinds(validation.ValidateKnown(&tt.toleration, path)))
		})
	}
}
