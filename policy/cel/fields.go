package cel

import (
	"cmp"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// The types of toleration and taint, alike for nodes and devices. That they are
// declared is why a misspelt field is found when a policy is written.
var (
	tolerationType = fieldsType("tollgate.Toleration", map[string]*apiservercel.DeclType{
		"key":               apiservercel.StringType,
		"operator":          apiservercel.StringType,
		"value":             apiservercel.StringType,
		"effect":            apiservercel.StringType,
		"tolerationSeconds": apiservercel.IntType,
	})
	taintType = fieldsType("tollgate.Taint", map[string]*apiservercel.DeclType{
		"key":       apiservercel.StringType,
		"value":     apiservercel.StringType,
		"effect":    apiservercel.StringType,
		"timeAdded": apiservercel.TimestampType,
	})
)

func fieldsType(name string, types map[string]*apiservercel.DeclType) *apiservercel.DeclType {
	declared := make(map[string]*apiservercel.DeclField, len(types))
	for field, t := range types {
		declared[field] = apiservercel.NewDeclField(field, t, false, nil, nil)
	}
	return apiservercel.NewObjectType(name, declared)
}

// fields is a toleration or a taint in CEL. Text that is not set reads as its
// default, and has() is false of it, as in protocol buffers: a comparison with a
// wildcard is false rather than a failure, and a wildcard can still be told.
type fields struct {
	declared                     *apiservercel.DeclType
	native                       any
	key, operator, value, effect string
	seconds                      *int64
	added                        *metav1.Time
}

// tolerationValue returns a toleration in CEL.
func tolerationValue(toleration any) (ref.Val, error) {
	switch t := toleration.(type) {
	case nil:
		return types.NullValue, nil
	case *corev1.Toleration:
		return &fields{
			declared: tolerationType, native: t, key: t.Key, operator: string(t.Operator),
			value: t.Value, effect: string(t.Effect), seconds: t.TolerationSeconds,
		}, nil
	case *resourcev1.DeviceToleration:
		return &fields{
			declared: tolerationType, native: t, key: t.Key, operator: string(t.Operator),
			value: t.Value, effect: string(t.Effect), seconds: t.TolerationSeconds,
		}, nil
	default:
		return nil, fmt.Errorf("no toleration: %T", toleration)
	}
}

// taintValue returns a taint in CEL.
func taintValue(taint any) (ref.Val, error) {
	switch t := taint.(type) {
	case nil:
		return types.NullValue, nil
	case *corev1.Taint:
		return &fields{declared: taintType, native: t, key: t.Key, value: t.Value, effect: string(t.Effect), added: t.TimeAdded}, nil
	case *resourcev1.DeviceTaint:
		return &fields{declared: taintType, native: t, key: t.Key, value: t.Value, effect: string(t.Effect), added: t.TimeAdded}, nil
	default:
		return nil, fmt.Errorf("no taint: %T", taint)
	}
}

// find returns the value of a field, nil if it has none, and whether it is set.
func (f *fields) find(name string) (ref.Val, bool) {
	if _, ok := f.declared.Fields[name]; !ok {
		return nil, false // reached through dyn()
	}
	switch name {
	case "key":
		return types.String(f.key), f.key != ""
	case "operator":
		return types.String(cmp.Or(f.operator, string(corev1.TolerationOpEqual))), f.operator != ""
	case "value":
		return types.String(f.value), f.value != ""
	case "effect":
		return types.String(f.effect), f.effect != ""
	case "tolerationSeconds":
		if f.seconds != nil {
			return types.Int(*f.seconds), true
		}
	case "timeAdded":
		if !f.added.IsZero() {
			return types.Timestamp{Time: f.added.UTC()}, true
		}
	}
	return nil, false
}

// Get implements traits.Indexer.
func (f *fields) Get(index ref.Val) ref.Val {
	name, ok := index.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(index)
	}
	value, _ := f.find(string(name))
	if value == nil {
		return types.NewErr("no such key: %s", name)
	}
	return value
}

// IsSet implements traits.FieldTester.
func (f *fields) IsSet(field ref.Val) ref.Val {
	name, ok := field.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(field)
	}
	_, set := f.find(string(name))
	return types.Bool(set)
}

// Equal implements ref.Val: two are equal if all their fields are.
func (f *fields) Equal(other ref.Val) ref.Val {
	o, ok := other.(*fields)
	if !ok || o.declared != f.declared {
		return types.False
	}
	for name := range f.declared.Fields {
		value, set := f.find(name)
		same, alsoSet := o.find(name)
		if set != alsoSet || set && types.Equal(value, same) != types.True {
			return types.False
		}
	}
	return types.True
}

// Type implements ref.Val.
func (f *fields) Type() ref.Type { return f.declared.CelType() }

// Value implements ref.Val.
func (f *fields) Value() any { return f.native }

// ConvertToNative implements ref.Val.
func (f *fields) ConvertToNative(to reflect.Type) (any, error) {
	if reflect.TypeOf(f.native).AssignableTo(to) {
		return f.native, nil
	}
	return nil, fmt.Errorf("convert %s to %s: not possible", f.declared.TypeName(), to)
}

// ConvertToType implements ref.Val.
func (f *fields) ConvertToType(to ref.Type) ref.Val {
	switch to.TypeName() {
	case f.declared.TypeName():
		return f
	case types.TypeType.TypeName():
		return f.declared.CelType()
	default:
		return types.NewErr("type conversion error from '%s' to '%s'", f.declared.TypeName(), to.TypeName())
	}
}
