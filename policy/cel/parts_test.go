package cel

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestOnlyWhatAnExpressionReadsIsDecoded(t *testing.T) {
	t.Parallel()
	// The text behind a colon is no JSON: decoding it is a fault.
	const object = `{"metadata": {"labels": {"app": "web", "broken": nothing}, "name": "web-0", "broken": nothing}, "broken": nothing}`
	tests := map[string]bool{
		"object.metadata.labels.app == 'web'":                                             true,
		"object.metadata.labels['app'] == 'web'":                                          true,
		"object.metadata.?labels[?'app'].orValue('') == 'web'":                            true,
		"object.?metadata.?labels.?app.hasValue()":                                        true,
		"has(object.metadata.name) && !has(object.metadata.generateName)":                 true,
		"object.metadata.name == 'web-0' && object.metadata.labels.app == 'web'":          true,
		"[object.metadata.name].exists(name, name == 'web-0')":                            true,
		"request.userInfo.username == 'anna'":                                             true,
		"namespaceObject.metadata.name == 'shop' && request.operation == 'CREATE'":        true,
		"object.metadata.labels.size() == 1":                                              false,
		"object.metadata.labels == {'app': 'web'}":                                        false,
		"object.metadata.labels.exists(name, name == 'app')":                              false,
		"object.metadata.labels[request.operation == 'CREATE' ? 'app' : 'name'] == 'web'": false,
		"object != null":                             false,
		"dyn(object).metadata.name == 'web-0'":       false,
		"(true ? object : null).metadata.name != ''": false,
		"[1].exists(object, .object != null)":        false,
		"object.metadata.labels.broken == 'a'":       false,
	}
	for text, decodes := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			r := review("anna")
			r.Request.Object = runtime.RawExtension{Raw: []byte(object)}
			got, err := mustCompile(t, OfToleration, text).Bool(t.Context(), r, nil)
			if !decodes {
				require.ErrorContains(t, err, "read object")
				return
			}
			require.NoError(t, err)
			require.True(t, got)
		})
	}
}

// An object is decoded a few times at most, however many expressions read parts of their own.
func TestExpressionsThatReadMuchDecodeAnObjectOnce(t *testing.T) {
	t.Parallel()
	r, j := review("anna"), judged(toleration())
	for i := range 100 {
		got, err := mustCompile(t, OfToleration, fmt.Sprintf("has(pod.metadata.labels.label%d)", i)).Bool(t.Context(), r, j)
		require.NoError(t, err)
		require.False(t, got)
	}
	require.Len(t, r.seen.documents, fewParts+1)
}

// world makes random JSON, with few names, so that they are read and stand twice.
type world struct{ *rand.Rand }

var worldNames = []string{`a`, `b`, `metadata`, `\u0061`, `c\"}{`, `é`, ``}

func (w world) space() string { return []string{"", "", " ", "\n\t"}[w.IntN(4)] }

func (w world) json(depth int) string {
	kind := w.IntN(8)
	if depth == 0 {
		kind = w.IntN(6)
	}
	switch kind {
	case 0:
		return "null"
	case 1:
		return []string{"true", "false"}[w.IntN(2)]
	case 2:
		return []string{"0", "-7", "1.5", "1e3", "9223372036854775807", "18446744073709551616"}[w.IntN(6)]
	case 3, 4, 5:
		return `"` + worldNames[w.IntN(len(worldNames))] + `,]\\"`
	case 6:
		var items []string
		for range w.IntN(4) {
			items = append(items, w.space()+w.json(depth-1)+w.space())
		}
		return "[" + strings.Join(items, ",") + "]"
	default:
		return w.object(depth)
	}
}

func (w world) object(depth int) string {
	var members []string
	for range w.IntN(6) {
		name := worldNames[w.IntN(len(worldNames))]
		members = append(members, w.space()+`"`+name+`"`+w.space()+":"+w.space()+w.json(depth-1)+w.space())
	}
	return w.space() + "{" + w.space() + strings.Join(members, ",") + "}" + w.space()
}

func (w world) parts(depth int) parts {
	if depth == 0 || w.IntN(4) == 0 {
		return nil
	}
	p := parts{}
	for range w.IntN(4) {
		var name string
		if err := json.Unmarshal([]byte(`"`+worldNames[w.IntN(len(worldNames))]+`"`), &name); err != nil {
			panic(err)
		}
		p[name] = w.parts(depth - 1)
	}
	return p
}

// pruned is the oracle: it takes the members that are not read out of a value.
func pruned(value any, read parts) any {
	object, ok := value.(map[string]any)
	if !ok || read == nil {
		return value
	}
	left := map[string]any{}
	for name, within := range read {
		if member, ok := object[name]; ok {
			left[name] = pruned(member, within)
		}
	}
	return left
}

func TestPartsAreThoseOfTheWhole(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := world{rand.New(rand.NewPCG(seed, 0))}
	for range 20_000 {
		text, read := w.object(4), w.parts(4)
		whole, err := parts(nil).decode([]byte(text))
		require.NoError(t, err, text)
		got, err := read.decode([]byte(text))
		require.NoError(t, err, text)
		require.Equal(t, pruned(whole, read), got, "%v of %s", read, text)
	}
}

func FuzzParts(f *testing.F) {
	w := world{rand.New(rand.NewPCG(1, 0))}
	for range 50 {
		f.Add([]byte(w.object(4)), uint64(0))
	}
	f.Add([]byte(podJSON), uint64(1))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		read := world{rand.New(rand.NewPCG(seed, 0))}.parts(4)
		got, err := read.decode(text)
		if !json.Valid(text) {
			return // It only has to end: reviews are parsed before.
		}
		whole, wholeErr := parts(nil).decode(text)
		if wholeErr != nil {
			return // Numbers that are too large: whether they are read is decided by parts.
		}
		require.NoError(t, err)
		require.Equal(t, pruned(whole, read), got)
	})
}
