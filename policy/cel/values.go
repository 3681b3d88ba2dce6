package cel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"
	celcommon "k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/utils/ptr"

	"github.com/tollgate-dev/tollgate/policy"
)

// seen holds the decoded values of a review.
type seen struct {
	documents          []document
	request, namespace ref.Val
	// misread is why the evaluation under way fails, although it may have a result: it has read
	// parameters for a driver that can be read in another way.
	misread string
}

// document is JSON and the value that what is read of it decodes to.
type document struct {
	source extract
	key    string
	value  ref.Val
}

// fewParts is how often parts of an object are decoded for expressions that read different ones. Then
// all of it is.
const fewParts = 4

// extract is a part of an object, identified by its place in memory: its bytes do not change during
// a review.
type extract struct {
	first *byte
	size  int
}

func extractOf(raw []byte) extract {
	if len(raw) == 0 {
		return extract{}
	}
	return extract{first: &raw[0], size: len(raw)}
}

// decode returns what is read of JSON in CEL, as the API server gives it to the expressions of
// admission policies: whole numbers are int, and quantities and times are text.
func (s *seen) decode(raw []byte, read projection) (ref.Val, error) {
	if len(raw) == 0 {
		return types.NullValue, nil
	}
	source, others := extractOf(raw), 0
	for _, d := range s.documents {
		if d.source == source {
			if d.key == read.key || d.key == "" {
				return d.value, nil
			}
			others++
		}
	}
	if others >= fewParts {
		read = projection{}
	}
	decoded, err := read.parts.decode(raw)
	if err != nil {
		return nil, err
	}
	s.withParameters(decoded, raw)
	value := types.DefaultTypeAdapter.NativeToValue(decoded)
	s.documents = append(s.documents, document{source: source, key: read.key, value: value})
	return value, nil
}

// scope holds the variables of one evaluation. It implements interpreter.Activation, and
// authorizer.UnconditionalAuthorizer for the library of Kubernetes.
type scope struct {
	ctx     context.Context //nolint:containedctx // The library of Kubernetes passes a context that never ends.
	program *Program
	review  *Review
	judged  *Judged
	// turns are where the evaluation has a turn; nil if it needs none.
	turns *Turns
	// unreadable and unauthorized are the first errors of a variable and of a check that could not be
	// made: to an expression such a check looks like one that was refused.
	unreadable, unauthorized error
}

// ResolveName returns a variable. An error is a fault: the API server sends nothing that cannot be read.
func (s *scope) ResolveName(name string) (any, bool) {
	value, err := s.resolve(name)
	if err != nil {
		s.unreadable = fmt.Errorf("read %s: %w", name, err)
		return types.NewErr("%s cannot be read", name), true
	}
	return value, value != nil
}

// Parent implements interpreter.Activation.
func (s *scope) Parent() interpreter.Activation { return nil }

// fault returns why the evaluation has no result.
func (s *scope) fault() error { return errors.Join(s.unreadable, s.unauthorized) }

// resolve returns nil for a name that is no variable.
func (s *scope) resolve(name string) (ref.Val, error) {
	request := s.review.request()
	documents, read := &s.review.shared().seen, s.program.projections[name]
	switch name {
	case admissioncel.ObjectVarName:
		return documents.decode(request.Object.Raw, read)
	case admissioncel.OldObjectVarName:
		return documents.decode(request.OldObject.Raw, read)
	case podVar:
		return documents.decode(s.judged.Pod, read)
	case claimVar:
		return documents.decode(s.judged.Claim, read)
	case tolerationVar:
		return valueOf(s.judged.Toleration, tolerationFields(s.judged.Toleration)), nil
	case taintVar:
		return valueOf(s.judged.Taint, taintFields(s.judged.Taint)), nil
	case operationVar:
		return types.String(s.judged.Operation), nil
	case admissioncel.RequestVarName:
		return s.review.requestValue(), nil
	case admissioncel.NamespaceVarName:
		return s.review.namespaceValue(), nil
	case admissioncel.AuthorizerVarName:
		return library.NewAuthorizerVal(policy.UserInfo(&request.UserInfo), s), nil
	case admissioncel.RequestResourceAuthorizerVarName:
		return library.NewResourceAuthorizerVal(policy.UserInfo(&request.UserInfo), s, requestResource(request)), nil
	default:
		return nil, nil
	}
}

func (r *Review) request() *admissionv1.AdmissionRequest {
	if r.Request == nil {
		return &admissionv1.AdmissionRequest{}
	}
	return r.Request
}

// requestValue returns request without the fields that an admission policy does not see.
func (r *Review) requestValue() ref.Val {
	seen := &r.shared().seen
	if seen.request == nil {
		seen.request = types.NullValue
		if r.Request != nil {
			request := *r.Request
			request.UID, request.Object, request.OldObject = "", runtime.RawExtension{}, runtime.RawExtension{}
			seen.request = celcommon.SchemalessTypedToVal(&request)
		}
	}
	return seen.request
}

func (r *Review) namespaceValue() ref.Val {
	seen := &r.shared().seen
	if seen.namespace == nil {
		seen.namespace = celcommon.SchemalessTypedToVal(admissioncel.CreateNamespaceObject(r.Namespace))
	}
	return seen.namespace
}

// requestResource is the resource for authorizer.requestResource: that of the request, and not the
// one it was converted to.
func requestResource(r *admissionv1.AdmissionRequest) library.Resource {
	resource, subresource := r.Resource, r.SubResource
	if r.RequestResource != nil {
		resource, subresource = *r.RequestResource, r.RequestSubResource
	}
	return admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, r.Namespace, r.Name,
		schema.GroupVersionResource(resource), subresource, "", nil, false, nil)
}

var errNoAuthorizer = errors.New("nobody can be asked what is authorized")

// Authorize implements authorizer.UnconditionalAuthorizer. It ends with the context of the evaluation.
func (s *scope) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := authorizer.DecisionNoOpinion, "", errNoAuthorizer
	if s.review.Authorizer != nil {
		decision, reason, err = s.ask(attributes)
	}
	s.unauthorized = cmp.Or(s.unauthorized, err)
	return decision, reason, err
}

// ask asks the authorizer. Its answer may take long, so others have the turn meanwhile.
func (s *scope) ask(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	turns := s.turns
	s.leave()
	decision, reason, err := s.review.Authorizer.Authorize(s.ctx, attributes)
	if failed := turns.take(s.ctx, false); failed != nil {
		return authorizer.DecisionNoOpinion, "", cmp.Or(err, failed)
	}
	s.turns = turns
	return decision, reason, err
}

// leave gives back the turn of the evaluation, if it has one.
func (s *scope) leave() {
	s.turns.leave()
	s.turns = nil
}

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
// wildcard is false rather than a failure, and a wildcard can still be recognized.
type fields struct {
	fieldValues

	native any
}

// fieldValues are all that a toleration or a taint holds. Equal ones have equal fields.
type fieldValues struct {
	declared                     *apiservercel.DeclType
	key, operator, value, effect string
	bounded                      bool
	seconds                      int64
	added                        time.Time
}

// tolerationFields returns what a toleration holds; nothing for none.
func tolerationFields(t *corev1.Toleration) fieldValues {
	if t == nil {
		return fieldValues{}
	}
	return fieldValues{
		declared: tolerationType, key: t.Key, operator: string(t.Operator), value: t.Value, effect: string(t.Effect),
		bounded: t.TolerationSeconds != nil, seconds: ptr.Deref(t.TolerationSeconds, 0),
	}
}

// taintFields returns what a taint holds; nothing for none.
func taintFields(t *corev1.Taint) fieldValues {
	if t == nil {
		return fieldValues{}
	}
	f := fieldValues{declared: taintType, key: t.Key, value: t.Value, effect: string(t.Effect)}
	if !t.TimeAdded.IsZero() {
		f.added = t.TimeAdded.UTC().Round(0) // without the projection of the monotonic clock
	}
	return f
}

// valueOf returns a toleration or a taint in CEL, which holds the fields; null for none.
func valueOf(native any, f fieldValues) ref.Val {
	if f.declared == nil {
		return types.NullValue
	}
	return &fields{fieldValues: f, native: native}
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
		if f.bounded {
			return types.Int(f.seconds), true
		}
	case "timeAdded":
		if !f.added.IsZero() {
			return types.Timestamp{Time: f.added}, true
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
	return types.Bool(ok && o.fieldValues == f.fieldValues)
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
