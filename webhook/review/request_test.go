package review

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestB09AReviewWithoutWhatItsOperationNeedsIsRefused(t *testing.T) {
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"OPERATION","object":OBJECT,"oldObject":OLD}}`
	tests := map[string]struct{ operation, object, old, want string }{
		"a creation":                    {"CREATE", "{}", "null", ""},
		"a creation of nothing":         {"CREATE", "null", "null", "request.object is missing on CREATE"},
		"an update":                     {"UPDATE", "{}", "{}", ""},
		"an update to nothing":          {"UPDATE", "null", "{}", "request.object is missing on UPDATE"},
		"an update of nothing":          {"UPDATE", "{}", "null", "request.oldObject is missing on UPDATE"},
		"a deletion":                    {"DELETE", "null", "{}", ""},
		"a deletion of nothing":         {"DELETE", "null", "null", "request.oldObject is missing on DELETE"},
		"a connection needs no object":  {"CONNECT", "null", "null", ""},
		"an operation that there isn't": {"PATCH", "{}", "{}", `request.operation is "PATCH", want CREATE, UPDATE, DELETE or CONNECT`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body := strings.NewReplacer("OPERATION", tt.operation, "OBJECT", tt.object, "OLD", tt.old).Replace(review)
			_, err := new(Reader).Read([]byte(body))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestAnErrorNamesTheField(t *testing.T) {
	tests := map[string]struct {
		text string
		read func(f *Fields, v Value)
		want string
	}{
		"a string":               {`{"spec":{"nodeName":7}}`, func(f *Fields, v Value) { f.Text(v, "spec", "nodeName") }, "decode spec.nodeName: not a string"},
		"an item of a list":      {`{"a":[{},{"b":"x"}]}`, func(f *Fields, v Value) { f.Bool(f.At(second(f, v), "b")) }, "decode a[1].b: neither true nor false"},
		"an integer too large":   {`{"n":9223372036854775808}`, func(f *Fields, v Value) { f.Integer(v, "n") }, "decode n: not an integer of 64 bits"},
		"what a decoder refuses": {`{"n":"x"}`, func(f *Fields, v Value) { f.Into(new(int), v, "n") }, "decode n: json: cannot unmarshal string into Go value of type int"},
		"too many values":        {`{"n":[` + strings.Repeat("1,", 12_000) + `1]}`, func(f *Fields, v Value) { f.Into(new([]int), v, "n") }, "decode n: holds 12002 values in 24003 bytes, at most 10600 are read"},
		"of the object":          {`{"request":{"object":{"a":1}}}`, func(f *Fields, v Value) { f.Text(v, "request", "object", "a") }, "decode a: not a string"},
		"of the old object":      {`{"request":{"oldObject":{"a":1}}}`, func(f *Fields, v Value) { f.Text(v, "request", "oldObject", "a") }, "decode request.oldObject.a: not a string"},
		"a name twice":           {`{"a":{"b":1,"\u0062":2}}`, func(f *Fields, v Value) { f.At(v, "a", "b") }, `decode a.b: duplicate field "b"`},
		"the first error stays":  {`{"a":1,"b":2}`, func(f *Fields, v Value) { f.Text(v, "a"); f.Text(v, "b") }, "decode a: not a string"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var f Fields
			tt.read(&f, parsed(t, tt.text))
			require.EqualError(t, f.Err(), tt.want)
		})
	}
}

// second returns the second item of the list a.
func second(f *Fields, v Value) (found Value) {
	for i, item := range f.Items(v, "a") {
		if i == 1 {
			found = item
		}
	}
	return found
}

func TestAClosedReaderHasNothingOfItsReview(t *testing.T) {
	reader := NewReader()
	body := reader.Buffer(len(`{"secret":1}`))
	copy(body, `{"secret":1}`)
	reader.Close()
	require.Equal(t, make([]byte, len(body)), body)
}
