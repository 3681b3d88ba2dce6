package cel

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// configured is a claim with parameters for a driver, and with others for another one.
func configured(parameters string) *Judged {
	return &Judged{Claim: []byte(`{"metadata":{"name":"c","labels":{"Opaque":"a","opaque":"b"}},"spec":{"devices":{"requests":[{"name":"r"}],"config":[` +
		`{"opaque":{"driver":"gpu.example.com","parameters":` + parameters + `}},` +
		`{"opaque":{"driver":"nic.example.com","parameters":{"apiVersion":"nic.example.com/v1","mtu":1500}}}]}}}`)}
}

func TestB06ParametersOfADriverThatCanBeReadInTwoWaysFailTheExpressionThatReadsThem(t *testing.T) {
	t.Parallel()
	const (
		first   = "claim.spec.devices.config[0].opaque.parameters"
		twice   = `{"sharing":"Exclusive","sharing":"TimeSlicing"}`
		cased   = `{"sharing":"Exclusive","Sharing":"TimeSlicing"}`
		kelvin  = `{"rank":1,"ran\u212a":2}`
		escaped = `{"sharing":"Exclusive","shar\u0069ng":"TimeSlicing"}`
		within  = `{"a":[{"b":{"sharing":1,"SHARING":2}}]}`
		other   = `{"Sharing":"TimeSlicing"}`
		plain   = `{"sharing":"Exclusive","list":[{"n":1},{"n":2}],"none":null}`
	)
	reads := func(of string, failure string, expressions ...string) map[string]string {
		all := map[string]string{}
		for _, e := range expressions {
			all[of+"\n"+e] = failure
		}
		return all
	}
	for _, tests := range []map[string]string{
		reads(twice, ambiguousKeys,
			first+".sharing == 'Exclusive'", first+".sharing != 'TimeSlicing'", first+"['sharing'] == 'TimeSlicing'",
			"has("+first+".sharing)", "!has("+first+".admin)", "'sharing' in "+first, first+".?sharing.orValue('') != ''",
			"claim.spec.devices.config[0].?opaque.?parameters.?admin.orValue('Exclusive') == 'Exclusive'",
			first+".size() == 1", first+".exists(k, k == 'sharing')", first+".all(k, v, v == 'TimeSlicing')",
			first+" == {'sharing': 'TimeSlicing'}", first+" != {}", "{} != "+first, first+" in [{'sharing': 'TimeSlicing'}]",
			"claim.spec.devices.config.exists(c, c.opaque.parameters.?sharing.orValue('') == 'TimeSlicing')",
			"claim.spec.devices.config.all(c, c.opaque.parameters.?admin.orValue(false) == false)",
			"claim == claim", "claim.spec.devices.config == claim.spec.devices.config", "claim.spec.devices.config[0].opaque != {'parameters': dyn({}), 'driver': dyn('gpu.example.com')}",
			// What is read counts, not what it was read for.
			first+".sharing == 'Exclusive' || true",
		),
		reads(cased, ambiguousKeys, first+".sharing == 'Exclusive'", first+".Sharing == 'TimeSlicing'", "!has("+first+".admin)"),
		reads(kelvin, ambiguousKeys, first+".rank == 1"),
		reads(escaped, ambiguousKeys, first+".sharing == 'TimeSlicing'"),
		reads(within, ambiguousKeys, first+".a[0].b.sharing == 1", first+".a[0].b.size() == 2", first+".a.all(x, has(x.b))"),
		reads(other, "opaque.parameters have the key Sharing, which a driver may read as sharing",
			"!has("+first+".sharing)", "!('sharing' in "+first+")", first+".?sharing.orValue('Exclusive') == 'Exclusive'",
			first+" != {'sharing': 'TimeSlicing'}", "{'sharing': 'TimeSlicing'} != "+first),
		reads(plain, "",
			first+".sharing == 'Exclusive'", "has("+first+".sharing) && !has("+first+".admin)", first+".list[1].n == 2", first+".list.all(x, x.n > 0)",
			first+".none == null", first+".size() == 3 && 'list' in "+first, first+".list == [{'n': 1}, {'n': 2}]", "claim == claim",
			first+".exists(k, v, k == 'sharing' && v == 'Exclusive')", first+".map(k, k).size() == 3"),
	} {
		for text, failure := range tests {
			t.Run(text, func(t *testing.T) {
				t.Parallel()
				given, expression, _ := strings.Cut(text, "\n")
				got, err := mustCompile(t, OfToleration, expression).Bool(t.Context(), review("anna"), configured(given))
				if failure == "" {
					require.NoError(t, err)
					require.True(t, got)
					return
				}
				require.False(t, got)
				require.ErrorAs(t, err, new(*FailedError))
				require.EqualError(t, err, failure)
			})
		}
		for text := range tests {
			given, _, _ := strings.Cut(text, "\n")
			t.Run("read by nobody: "+given, func(t *testing.T) {
				t.Parallel()
				r, j := review("anna"), configured(given)
				for _, expression := range []string{
					"claim.metadata.name == 'c'", "claim.metadata.labels.opaque == 'b' && claim.metadata.labels.Opaque == 'a'", "claim != null",
					"claim.spec.devices.requests[0].name == 'r'", "claim.spec.devices.config.size() == 2", "claim.spec.devices.config[0].opaque.driver == 'gpu.example.com'",
					"has(claim.spec.devices.config[0].opaque.parameters)",
				} {
					got, err := mustCompile(t, OfToleration, expression).Bool(t.Context(), r, j)
					require.NoError(t, err, expression)
					require.True(t, got, expression)
				}
			})
			break
		}
	}
}

// An evaluation that fails for what it read says nothing of the next one.
func TestB06AnExpressionThatReadsOtherThingsIsEvaluatedAsUsual(t *testing.T) {
	t.Parallel()
	r, j := review("anna"), configured(`{"sharing":"Exclusive","Sharing":"TimeSlicing"}`)
	for range 2 {
		_, err := mustCompile(t, OfToleration, "claim.spec.devices.config[0].opaque.parameters.sharing == 'Exclusive'").Bool(t.Context(), r, j)
		require.EqualError(t, err, ambiguousKeys)
		got, err := mustCompile(t, OfToleration, "claim.spec.devices.config[1].opaque.parameters.mtu == 1500").Bool(t.Context(), r, j)
		require.NoError(t, err)
		require.True(t, got)
	}
}

func TestB06ParametersCostWhatTheyHold(t *testing.T) {
	t.Parallel()
	j := configured(`{"list":[0` + strings.Repeat(",1", 40_000) + `]}`)
	_, err := mustCompile(t, OfToleration, "claim.spec.devices.config == claim.spec.devices.config").Bool(t.Context(), review("anna"), j)
	require.EqualError(t, err, tooCostly)
}
