package cel

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// An API server stores the parameters for a driver, opaque.parameters of a claim, byte for byte: a
// key may be there twice, or in another case. The driver may read another value than an
// expression: encoding/json takes the last one, whatever its case. So an evaluation fails that reads
// such a key (B06). All other objects are written by the API server itself, with each key once.
const (
	opaqueMember     = "opaque"
	parametersMember = "parameters"
)

// ambiguousKeys is why an evaluation fails that reads parameters in which a key is there twice.
const ambiguousKeys = "opaque.parameters have a key twice, or in several cases: the driver may read another value"

// markParameters puts parameters in their places in a value. Repeated says that some key is there twice.
func (s *seen) markParameters(in any, repeated bool) {
	switch in := in.(type) {
	case []any:
		for _, item := range in {
			s.markParameters(item, repeated)
		}
	case map[string]any:
		for name, member := range in {
			opaque, _ := member.(map[string]any)
			if given, ok := opaque[parametersMember]; ok && name == opaqueMember {
				adapter := parameterAdapter{seen: s, ambiguous: repeated || hasVariants(given)}
				opaque[parametersMember] = adapter.NativeToValue(given)
				continue
			}
			s.markParameters(member, repeated)
		}
	}
}

// hasVariants reports whether an object within a value has keys that differ in nothing but case.
func hasVariants(in any) bool {
	switch in := in.(type) {
	case []any:
		return slices.ContainsFunc(in, hasVariants)
	case map[string]any:
		names := make(map[string]struct{}, len(in))
		for name, member := range in {
			names[folded(name)] = struct{}{}
			if hasVariants(member) {
				return true
			}
		}
		return len(names) < len(in)
	default:
		return false
	}
}

// folded returns the same for names that differ in nothing but case, as encoding/json and
// strings.EqualFold compare them.
func folded(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			least = min(least, other)
		}
		return least
	}, name)
}

// parameterAdapter makes values of decoded JSON, with parameters for its objects. It implements
// types.Adapter.
type parameterAdapter struct {
	seen      *seen
	ambiguous bool
}

// NativeToValue implements types.Adapter.
func (a parameterAdapter) NativeToValue(native any) ref.Val {
	switch v := native.(type) {
	case map[string]any:
		return &parameters{types.NewStringInterfaceMap(a, v), a, v}
	case []any:
		return types.NewDynamicList(a, v)
	default:
		return types.DefaultTypeAdapter.NativeToValue(native)
	}
}

// parameters is an object of the parameters for a driver. It notes what makes the evaluation that
// reads it fail.
type parameters struct {
	traits.Mapper
	parameterAdapter

	members map[string]any
}

// reads notes that a key is read, or, without a key, that any of them may be.
func (p *parameters) reads(key ref.Val) {
	if p.ambiguous {
		p.seen.misread = ambiguousKeys
	}
	name, isText := key.(types.String)
	if _, exact := p.members[string(name)]; exact || !isText {
		return
	}
	for _, other := range slices.Sorted(maps.Keys(p.members)) {
		if strings.EqualFold(other, string(name)) {
			p.seen.misread = fmt.Sprintf("opaque.parameters have the key %s, which a driver may read as %s", short(other), short(string(name)))
		}
	}
}

// Find implements traits.Mapper.
func (p *parameters) Find(key ref.Val) (ref.Val, bool) {
	p.reads(key)
	return p.Mapper.Find(key)
}

// Get implements traits.Indexer.
func (p *parameters) Get(key ref.Val) ref.Val {
	p.reads(key)
	return p.Mapper.Get(key)
}

// Contains implements traits.Container.
func (p *parameters) Contains(key ref.Val) ref.Val {
	p.reads(key)
	return p.Mapper.Contains(key)
}

// Iterator implements traits.Iterable.
func (p *parameters) Iterator() traits.Iterator {
	p.reads(nil)
	return p.Mapper.Iterator()
}

// Size implements traits.Sizer.
func (p *parameters) Size() ref.Val {
	p.reads(nil)
	return p.Mapper.Size()
}

// Equal implements ref.Val.
func (p *parameters) Equal(other ref.Val) ref.Val {
	p.reads(nil)
	if mapper, ok := other.(traits.Mapper); ok {
		for keys := mapper.Iterator(); keys.HasNext() == types.True; {
			p.reads(keys.Next())
		}
	}
	return p.Mapper.Equal(other)
}
