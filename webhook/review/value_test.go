package review

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parsed(t *testing.T, text string) Value {
	t.Helper()
	v, err := Parse([]byte(text))
	require.NoError(t, err)
	return v
}

func TestAMemberOfAnObject(t *testing.T) {
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
		"nothing":                 {data: ``, problem: "unexpected end of JSON"},
		"null for an object":      {data: ` null `},
		"twice":                   {data: `{"a":1,"b":2,"a":3}`, want: "1", problem: `duplicate field "a"`},
		"twice, once in disguise": {data: `{"a":1,"\u0061":3}`, want: "1", problem: `duplicate field "a"`},
		"another name twice":      {data: `{"b":1,"b":2,"a":3}`, want: "3"},
		"a list, not an object":   {data: `[1]`, problem: "not an object"},
		"a number":                {data: `1`, problem: "not an object"},
		"a number too large":      {data: `{"a":1,"b":[1e700]}`, want: "1", problem: "the number 1e700 is out of range"},
		"too many digits":         {data: `{"a":` + strings.Repeat("9", 400) + `}`, problem: "is out of range"},
		"many digits":             {data: `{"a":0.` + strings.Repeat("9", 400) + `}`, want: "0." + strings.Repeat("9", 400)},
		"cut off":                 {data: `{"a":`, problem: "unexpected end of JSON"},
		"cut off in a name":       {data: `{"a`, problem: "unexpected end of JSON"},
		"cut off at a quote":      {data: `{"`, problem: "unexpected end of JSON"},
		"cut off behind a value":  {data: `{"a":1`, want: "1", problem: "unexpected end of JSON"},
		"no colon":                {data: `{"a" 1}`, problem: "invalid character '1' at byte 5"},
		"no value":                {data: `{"a":}`, problem: "invalid character '}' at byte 5"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v, err := Parse([]byte(tt.data))
			if err == nil {
				var f Fields
				got := f.At(v, "a")
				if err = f.Err(); err == nil {
					require.Equal(t, tt.want, string(got.Raw()))
				}
			}
			if tt.problem != "" {
				require.ErrorContains(t, err, tt.problem)
				return
			}
			require.NoError(t, err)
		})
	}
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
		"a number":             {raw: `{"a":7}`, says: "decode a: not a string"},
		"a list":               {raw: `["a"]`, says: "not an object"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var v Value
			if tt.raw != "" {
				v = parsed(t, tt.raw)
			}
			var f Fields
			got := f.Texts(v)
			err := f.Err()
			if tt.says != "" {
				require.ErrorContains(t, err, tt.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}
