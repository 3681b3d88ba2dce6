package webhook

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tollgate-dev/tollgate/policy/validation"
)

func TestFindMembers(t *testing.T) {
	tests := map[string]struct {
		data    string
		want    string
		problem string
	}{
		"the first":               {data: `{"a":1,"b":2}`, want: "1"},
		"the last":                {data: ` { "b" : 2 , "a" : "x" } `, want: `"x"`},
		"an object":               {data: `{"b":{"a":2},"a":{"x":[1,{"y":"}"}]}}`, want: `{"x":[1,{"y":"}"}]}`},
		"a list":                  {data: `{"a":[[],{}],"b":2}`, want: `[[],{}]`},
		"null":                    {data: `{"a":null}`, want: "null"},
		"a value with a quote":    {data: `{"b":"\"a\":3,\\","a":"\\\""}`, want: `"\\\""`},
		"a name with an escape":   {data: `{"\u0061":true}`, want: "true"},
		"a name in another case":  {data: `{"A":1}`},
		"only inside of another":  {data: `{"b":{"a":1},"c":[{"a":2}]}`},
		"an empty object":         {data: `{}`},
		"nothing":                 {data: ``},
		"null for an object":      {data: ` null `},
		"twice":                   {data: `{"a":1,"b":2,"a":3}`, want: "1", problem: `duplicate field "a"`},
		"twice, once in disguise": {data: `{"a":1,"\u0061":3}`, want: "1", problem: `duplicate field "a"`},
		"another name twice":      {data: `{"b":1,"b":2,"a":3}`, want: "3"},
		"a list, not an object":   {data: `[1]`, problem: "not an object"},
		"a number":                {data: `1`, problem: "not an object"},
		"cut off":                 {data: `{"a":`, problem: "unexpected end"},
		"cut off in a name":       {data: `{"a`, problem: "unexpected end"},
		"cut off at a quote":      {data: `{"`, problem: "unexpected end"},
		"cut off behind a value":  {data: `{"a":1`, want: "1", problem: "unexpected end"},
		"no colon":                {data: `{"a" 1}`, problem: "unexpected end"},
		"no value":                {data: `{"a":}`, problem: "unexpected end"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got json.RawMessage
			err := findMembers([]byte(tt.data), member{"a", &got})
			if tt.problem != "" {
				require.ErrorContains(t, err, tt.problem)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tt.want, string(got))
		})
	}
}

// decodedWhole is what a decoder makes of a slice, without the errors of values of
// the wrong type in fields that are not looked at.
func decodedWhole(raw []byte) ([]validation.Device, error) {
	var object struct {
		Spec struct {
			Devices []struct {
				Name   string                   `json:"name"`
				Taints []resourcev1.DeviceTaint `json:"taints"`
			} `json:"devices"`
		} `json:"spec"`
	}
	if err := unmarshal(raw, &object); err != nil {
		return nil, err
	}
	var found []validation.Device
	for _, d := range object.Spec.Devices {
		found = append(found, validation.Device{Name: d.Name, Taints: d.Taints})
	}
	return found, nil
}

func TestDevicesAreFoundAsADecoderFindsThem(t *testing.T) {
	for _, n := range []int{0, 1, 128} {
		raw := encoded(t, bigSlice(n))
		want, err := decodedWhole(raw)
		require.NoError(t, err)
		got, err := sliceDevices(raw)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func FuzzSliceDevices(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `{"spec":null}`, sliceJSON(`[{"key":"k","value":"v","effect":"None","timeAdded":"2026-11-01T00:00:00Z"}]`),
		`{"spec":{"devices":[null,{"name":null,"taints":null}]}}`, `{"spec":{"devices":[{"name":"\ud800"}]}}`,
		`{"spec":{"devices":[{"name":"a","name":"b"}]}}`, `{"sp\u0065c":{"devices":[{"taints":[{}]}]}}`, `{"spec":{"devices":[`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, object string) {
		raw := []byte(object)
		got, err := sliceDevices(raw)
		if err != nil {
			var bad *badReviewError
			require.ErrorAs(t, err, &bad)
		}
		if checkText(raw) != nil || !json.Valid(raw) || len(raw) > 10_000 {
			return // it is no part of a review
		}
		want, wantErr := decodedWhole(raw)
		require.Equal(t, wantErr == nil, err == nil, "%v, a decoder says %v", err, wantErr)
		if err == nil {
			require.Equal(t, marshal(t, want), marshal(t, got))
		}
	})
}

func TestStringsAreDecodedAsADecoderDoes(t *testing.T) {
	tests := map[string]struct {
		raw  string
		want map[string]string
		says string
	}{
		"nothing":              {raw: ``},
		"null":                 {raw: `null`},
		"no strings":           {raw: `{}`, want: map[string]string{}},
		"some":                 {raw: `{"a":"b","c": ""}`, want: map[string]string{"a": "b", "c": ""}},
		"a value of null":      {raw: `{"a":null}`, want: map[string]string{"a": ""}},
		"escapes":              {raw: `{"\u0061\"":"\u0062"}`, want: map[string]string{`a"`: "b"}},
		"a name twice":         {raw: `{"a":"b","a":"c"}`, says: "duplicate"},
		"a name twice escaped": {raw: `{"a":"b","\u0061":"c"}`, says: "duplicate"},
		"a number":             {raw: `{"a":7}`, says: "number"},
		"a list":               {raw: `["a"]`, says: "not an object"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := decodeStrings([]byte(tt.raw))
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}
