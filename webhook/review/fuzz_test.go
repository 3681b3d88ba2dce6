package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	kjson "sigs.k8s.io/json"
)

// maxFuzzed keeps the oracles fast. It leaves room for values that are nested too deeply.
const maxFuzzed = 2*maxDepth + 200

// FuzzParse compares with encoding/json, whose grammar is that of Kubernetes' decoder, and what is
// found with what that decoder finds.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{}`, `[]`, `null`, `true`, ` { "a" : [ 1 , -0.5e+3 , "b" ] } `, `{"a":{"a":{"a":[[],{}]}}}`, `"\u00e9\ud83d\ude00\ud800\n\/"`, `{"\u0061":1,"b":"\""}`,
		`{"a":1,"a":2}`, `{"managedFields":[{"f:a":{}}],"b":1}`, `01`, `1.`, `-`, `1e`, `"\x"`, `"\u12"`, `{"a"}`, `{"a":}`, `[1,]`, `{,}`, `nul`, `tru`, "\"\xff\"", "\"\x01\"", `{"a":1}{`, "\ufeff{}", `1e700`,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > maxFuzzed {
			return
		}
		v, err := Parse(text)
		valid := json.Valid(text) && utf8.Valid(text)
		if err != nil {
			// The grammar has numbers that no decoder holds.
			tooLarge := kjson.UnmarshalCaseSensitivePreserveInts(text, new(any)) != nil
			require.True(t, !valid || tooLarge || errors.Is(err, errDepth), "%q: %v", text, err)
			return
		}
		require.True(t, valid, "%q", text)
		var want any
		require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(text, &want))
		got, duplicates := whole(t, v)
		if duplicates {
			return // the decoder takes the last one
		}
		require.Equal(t, withoutManagedFields(want), got, "%q", text)
	})
}

// whole returns a value as a decoder does, and whether some object has a name twice.
func whole(t *testing.T, v Value) (any, bool) {
	t.Helper()
	var f Fields
	twice := false
	var out any
	switch {
	case v.IsNull():
	case v.opens('{'):
		object := map[string]any{}
		for name, member := range f.Members(v) {
			if name == "managedFields" {
				continue
			}
			inner, duplicates := whole(t, member)
			object[name], twice = inner, twice || duplicates
			var own Fields
			if found := own.At(v, name); own.err == nil {
				require.True(t, bytes.Equal(member.Raw(), found.Raw()), "%q: %s, not %s", name, found.Raw(), member.Raw())
			}
		}
		if f.err != nil {
			require.ErrorContains(t, f.Err(), "duplicate field")
			return nil, true
		}
		out = object
	case v.opens('['):
		list := []any{}
		for _, item := range f.Items(v) {
			inner, duplicates := whole(t, item)
			list, twice = append(list, inner), twice || duplicates
		}
		out = list
	default:
		require.NoError(t, kjson.UnmarshalCaseSensitivePreserveInts(v.Raw(), &out))
		switch want := out.(type) {
		case string:
			require.Equal(t, want, f.Text(v))
		case bool:
			require.Equal(t, want, f.Bool(v))
		case int64:
			require.Equal(t, want, *f.Integer(v))
		}
	}
	if f.err == nil {
		require.NoError(t, f.Err())
	}
	return out, twice
}

func withoutManagedFields(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "managedFields")
		for name := range v {
			v[name] = withoutManagedFields(v[name])
		}
	case []any:
		for i := range v {
			v[i] = withoutManagedFields(v[i])
		}
	}
	return v
}

// envelope is a review as Kubernetes' decoder reads it.
type envelope struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Response   json.RawMessage `json:"response"`
	Request    *struct {
		admissionv1.AdmissionRequest

		UserInfo  authenticationv1.UserInfo `json:"userInfo"`
		Object    json.RawMessage           `json:"object"`
		OldObject json.RawMessage           `json:"oldObject"`
		Options   json.RawMessage           `json:"options"`
	} `json:"request"`
}

// FuzzRead compares the request of a review with what Kubernetes' decoder makes of it.
func FuzzRead(f *testing.F) {
	const start, end = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"UPDATE","object":{},"oldObject":{}`, `}}`
	for _, fields := range []string{
		``, `,"kind":{"group":"apps","version":"v1","kind":"Deployment"},"resource":{"version":"v1","resource":"pods"},"requestKind":{"kind":"Pod"},"requestResource":{"resource":"pods"}`,
		`,"dryRun":true,"subResource":"status","requestSubResource":"s","name":"n","namespace":"x","options":{"a":[1]}`, `,"dryRun":null,"kind":null,"userInfo":null`,
		`,"userInfo":{"username":"jane","uid":"1","groups":["a",null,"b"],"extra":{"k":["v"],"l":null,"m":[]}}`, `,"userInfo":{"groups":"a"}`, `,"dryRun":1`, `,"name":1`, `,"uid":"v"`, `,"\u006eame":"x"`, `,"Name":"x"`,
	} {
		f.Add([]byte(start + fields + end))
	}
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{"spec":{}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > maxFuzzed {
			return
		}
		reader := NewReader()
		defer reader.Close()
		req, err := reader.Read(body)
		var want envelope
		duplicates, wantErr := kjson.UnmarshalStrict(body, &want, kjson.DisallowDuplicateFields)
		if wantErr == nil && (want.Request == nil || len(want.Response) > 0 && string(want.Response) != "null") {
			wantErr = errors.New("no request")
		}
		if err != nil {
			if wantErr != nil || len(duplicates) > 0 || !utf8.Valid(body) || errors.Is(err, errDepth) {
				return
			}
			// The rules that a decoder does not have.
			text := fmt.Sprint(err)
			for _, refusal := range []string{"apiVersion is", "kind is", "request.uid has", "request.operation is", "is missing on"} {
				if strings.HasPrefix(text, refusal) || strings.HasSuffix(text, "CREATE") || strings.HasSuffix(text, "UPDATE") || strings.HasSuffix(text, "DELETE") {
					return
				}
			}
			require.NoError(t, err, "%q", body)
		}
		require.NoError(t, wantErr, "%q", body)
		r := want.Request
		expected := r.AdmissionRequest
		expected.UserInfo = r.UserInfo
		got := req.AdmissionRequest
		require.Equal(t, string(r.Object), string(got.Object.Raw))
		require.Equal(t, string(r.OldObject), string(got.OldObject.Raw))
		require.Equal(t, string(r.Options), string(got.Options.Raw))
		expected.Object, expected.OldObject, expected.Options = got.Object, got.OldObject, got.Options
		require.Equal(t, text(t, expected), text(t, got), "%q", body)
		require.Equal(t, want.APIVersion, req.APIVersion)
		require.Equal(t, string(got.Object.Raw), string(req.New.Raw()))
		require.Equal(t, string(got.OldObject.Raw), string(req.Old.Raw()))
	})
}

func text(t *testing.T, v any) string {
	t.Helper()
	out, err := json.Marshal(v)
	require.NoError(t, err)
	return string(out)
}

// FuzzFields compares fields that are read one by one with those that a decoder reads.
func FuzzFields(f *testing.F) {
	for _, seed := range []string{`[{"a":"b","n":5,"t":true}]`, `[null]`, `{}`, `[{"n":1.5}]`, `[{"n":9223372036854775808}]`, `[{"a":5}]`, `[{"t":"x"}]`, `[{"n":-0}]`, `[{"n":1e2}]`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, err := Parse([]byte(text))
		if err != nil || len(text) > maxFuzzed || strings.Contains(text, "managedFields") {
			return
		}
		type item struct {
			A string `json:"a"`
			N *int64 `json:"n"`
			T bool   `json:"t"`
		}
		var want []item
		wantErr := Unmarshal([]byte(text), &want)
		var fields Fields
		var got []item
		for _, i := range fields.Items(v) {
			got = append(got, item{fields.Text(i, "a"), fields.Integer(i, "n"), fields.Bool(i, "t")})
		}
		if err := fields.Err(); err != nil {
			require.Error(t, wantErr, "%q: %v", text, err)
			return
		}
		if wantErr != nil {
			require.ErrorContains(t, wantErr, "duplicate", "of a name that is not read: %q", text)
			return
		}
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i], got[i])
		}
	})
}
