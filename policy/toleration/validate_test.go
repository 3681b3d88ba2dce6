package toleration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestValidateTolerations(t *testing.T) {
	tests := map[string]struct {
		tolerates string
		want      []string
	}{
		"AV-23 every field":                                  {`{key: example.com/a, operator: Equal, value: b, effect: NoExecute, tolerationSeconds: 60}`, nil},
		"AV-23 negative seconds are legal":                   {`{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: -2}`, nil},
		"AV-23 an empty effect is legal":                     {`{key: a, operator: Equal, value: b}`, nil},
		"AV-23 an empty operator is legal":                   {`{key: a, value: b, effect: NoSchedule}`, nil},
		"AV-23 every effect is legal":                        {`{key: a, operator: Exists, effect: PreferNoSchedule}`, nil},
		"AV-23 seconds need NoExecute":                       {`{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 60}`, []string{"FieldValueInvalid spec.tolerations[0].effect"}},
		"AV-23 seconds need an effect":                       {`{key: a, operator: Exists, tolerationSeconds: 60}`, []string{"FieldValueInvalid spec.tolerations[0].effect"}},
		"AV-23 the key is a label name":                      {`{key: "nospecialchars^=@", operator: Exists}`, []string{"FieldValueInvalid spec.tolerations[0].key"}},
		"AV-23 the key has one prefix":                       {`{key: a/b/c, operator: Exists}`, []string{"FieldValueInvalid spec.tolerations[0].key"}},
		"AV-24 Exists needs no key":                          {`{operator: Exists}`, nil},
		"AV-24 Equal needs a key":                            {`{operator: Equal, value: b}`, []string{"FieldValueInvalid spec.tolerations[0].operator"}},
		"AV-24 an empty operator needs a key":                {`{value: b}`, []string{"FieldValueInvalid spec.tolerations[0].operator"}},
		"AV-24 Exists takes no value":                        {`{key: a, operator: Exists, value: b}`, []string{"FieldValueInvalid spec.tolerations[0].operator"}},
		"AV-24 the value is a label value":                   {`{key: a, operator: Equal, value: "b c"}`, []string{"FieldValueInvalid spec.tolerations[0].operator"}},
		"AV-24 both faults are told":                         {`{operator: Equal, value: "-5"}`, []string{"FieldValueInvalid spec.tolerations[0].operator", "FieldValueInvalid spec.tolerations[0].operator"}},
		"AV-25 a number to compare with":                     {`{key: a, operator: Gt, value: "0"}`, nil},
		"AV-25 a negative number to compare with":            {`{key: a, operator: Lt, value: "-100"}`, nil},
		"AV-25 the least number":                             {`{key: a, operator: Gt, value: "-9223372036854775808"}`, nil},
		"AV-25 one below the least number":                   {`{key: a, operator: Gt, value: "-9223372036854775809"}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 one above the greatest number":                {`{key: a, operator: Lt, value: "9223372036854775808"}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 leading zeros":                                {`{key: a, operator: Lt, value: "0550"}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 a plus sign":                                  {`{key: a, operator: Lt, value: "+5"}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 spaces":                                       {`{key: a, operator: Lt, value: " 5"}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 minus zero":                                   {`{key: a, operator: Lt, value: "-0"}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 a fraction":                                   {`{key: a, operator: Lt, value: "5.5"}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 no number":                                    {`{key: a, operator: Lt}`, []string{"FieldValueInvalid spec.tolerations[0].value"}},
		"AV-25 a comparison needs a key":                     {`{operator: Lt, value: "5"}`, []string{"FieldValueInvalid spec.tolerations[0].operator"}},
		"B12 an unknown operator is for the API server":      {`{key: a, operator: Like, value: b}`, nil},
		"B12 an unknown effect is for the API server":        {`{key: a, operator: Exists, effect: NoAdmit, tolerationSeconds: 5}`, nil},
		"B12 the key of an unknown operator is still looked": {`{key: "a b", operator: Like}`, []string{"FieldValueInvalid spec.tolerations[0].key"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			errs := ValidateTolerations(tolerationsOf(t, tt.tolerates), nil, specTolerations)
			require.ElementsMatch(t, tt.want, errorsOf(errs), "%v", errs)
		})
	}
}

func TestAV27WhatAPodToleratesStaysButForItsSeconds(t *testing.T) {
	const (
		a         = `{key: a, operator: Equal, value: "1", effect: NoExecute, tolerationSeconds: 10}`
		forbidden = "FieldValueForbidden spec.tolerations"
	)
	tests := map[string]struct {
		old, current string
		want         []string
	}{
		"nothing changes":                  {a, a, nil},
		"another time":                     {a, strings.Replace(a, "10", "20", 1), nil},
		"no time":                          {a, strings.Replace(a, ", tolerationSeconds: 10", "", 1), nil},
		"another key":                      {a, strings.Replace(a, "key: a", "key: b", 1), []string{forbidden}},
		"another value":                    {a, strings.Replace(a, `"1"`, `"2"`, 1), []string{forbidden}},
		"another effect":                   {a, `{key: a, operator: Equal, value: "1", effect: NoSchedule}`, []string{forbidden}},
		"another operator":                 {a, strings.Replace(a, `Equal, value: "1"`, "Exists", 1), []string{forbidden}},
		"the default operator written out": {`{key: a, value: b}`, `{key: a, operator: Equal, value: b}`, []string{forbidden}},
		"a removal":                        {a, ``, []string{forbidden}},
		"an addition before":               {a, `{key: b, operator: Exists}` + "\n" + a, nil},
		"an addition that is not valid":    {a, a + "\n" + `{key: b, operator: Exists, value: c}`, []string{"FieldValueInvalid spec.tolerations[1].operator"}},
		"a change of time to one that is not valid":  {`{key: a, operator: Exists, effect: NoSchedule}`, `{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 1}`, []string{"FieldValueInvalid spec.tolerations[0].effect"}},
		"a removal hides nothing else":               {a, `{key: "a b", operator: Exists}`, []string{forbidden, "FieldValueInvalid spec.tolerations[0].key"}},
		"AV-28 another order":                        {a + "\n" + `{key: b, operator: Exists}`, `{key: b, operator: Exists}` + "\n" + a, nil},
		"AV-28 two that differ in time become one":   {a + "\n" + strings.Replace(a, "10", "20", 1), a, nil},
		"AV-28 one of two that differ in value goes": {a + "\n" + strings.Replace(a, `"1"`, `"2"`, 1), a, []string{forbidden}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			errs := ValidateTolerations(tolerationsOf(t, tt.current), tolerationsOf(t, tt.old), specTolerations)
			require.Equal(t, tt.want, append([]string(nil), errorsOf(errs)...), "%v", errs)
		})
	}
}

func TestAV29AnyNumberOfTolerationsIsLegal(t *testing.T) {
	many := make([]corev1.Toleration, 5000)
	for i := range many {
		many[i] = corev1.Toleration{Operator: corev1.TolerationOpExists}
	}
	require.Empty(t, ValidateTolerations(many, many[:4000], specTolerations))
}
