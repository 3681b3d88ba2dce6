package cel

import (
	"bytes"
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
	sjson "sigs.k8s.io/json"

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
	if bytes.Contains(raw, []byte(opaqueMember)) {
		// What cannot be decoded was refused before.
		repeated, _ := sjson.UnmarshalStrict(raw, new(any), sjson.DisallowDuplicateFields)
		s.markParameters(decoded, len(repeated) > 0)
	}
	value := types.DefaultTypeAdapter.NativeToValue(decoded)
	s.documents = append(s.documents, document{source: source, key: read.key, value: value})
	return value, nil
}

// scope holds the variables of one evaluation. It implements interpreter.Activation, and
// authorizer.UnconditionalAuthorizer for the library of Kubernetes.
type scope struct {
	ctx     context.Context //nolint:containedctx // The library of Kubernetes passes a context that never ends.
	program *Program
	review  *Review // the shared one
	judged  *Judged
	// turns are where the evaluation has a turn; nil if it needs none.
	turns *Turns
	// unreadable and unauthorized are the first errors of a variable and of a check that could not be
	// made: to an expression such a check looks like one that was refused.
	unreadable, unauthorized error
}

// ResolveName returns a variable.
func (s *scope) ResolveName(name string) (any, bool) {
	request := cmp.Or(s.review.Request, &noRequest)
	switch name {
	case admissioncel.ObjectVarName:
		return s.decode(name, request.Object.Raw), true
	case admissioncel.OldObjectVarName:
		return s.decode(name, request.OldObject.Raw), true
	case podVar:
		return s.decode(name, s.judged.Pod), true
	case claimVar:
		return s.decode(name, s.judged.Claim), true
	case tolerationVar, taintVar:
		if f := fieldsOf(s.judged); f.declared != nil {
			return &f, true
		}
		return types.NullValue, true
	case operationVar:
		return types.String(s.judged.Operation), true
	case admissioncel.RequestVarName:
		return s.review.requestValue(), true
	case admissioncel.NamespaceVarName:
		seen := &s.review.seen
		if seen.namespace == nil {
			seen.namespace = celcommon.SchemalessTypedToVal(admissioncel.CreateNamespaceObject(s.review.Namespace))
		}
		return seen.namespace, true
	case admissioncel.AuthorizerVarName:
		return library.NewAuthorizerVal(policy.UserInfo(&request.UserInfo), s), true
	case admissioncel.RequestResourceAuthorizerVarName:
		return library.NewResourceAuthorizerVal(policy.UserInfo(&request.UserInfo), s, requestResource(request)), true
	default:
		return nil, false
	}
}

// decode returns a variable that is an object. An error is a fault: the API server sends nothing that
// cannot be read.
func (s *scope) decode(name string, raw []byte) ref.Val {
	value, err := s.review.seen.decode(raw, s.program.projections[name])
	if err != nil {
		s.unreadable = fmt.Errorf("read %s: %w", name, err)
		return types.NewErr("%s cannot be read", name)
	}
	return value
}

// Parent implements interpreter.Activation.
func (s *scope) Parent() interpreter.Activation { return nil }

// noRequest is the request of a review of nothing.
var noRequest admissionv1.AdmissionRequest

// requestValue returns request without the fields that an admission policy does not see.
func (r *Review) requestValue() ref.Val {
	if r.seen.request == nil {
		request := r.Request
		if request != nil {
			request = new(*request)
			request.UID, request.Object, request.OldObject = "", runtime.RawExtension{}, runtime.RawExtension{}
		}
		r.seen.request = celcommon.SchemalessTypedToVal(request)
	}
	return r.seen.request
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
// The answer may take long, so others have the turn meanwhile.
//
//nolint:contextcheck // The context given is that of Kubernetes' library, which has no end.
func (s *scope) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := authorizer.DecisionNoOpinion, "", errNoAuthorizer
	if s.review.Authorizer != nil {
		turns := s.turns
		s.leave()
		decision, reason, err = s.review.Authorizer.Authorize(s.ctx, attributes)
		if failed := turns.take(s.ctx, false); failed != nil {
			decision, reason, err = authorizer.DecisionNoOpinion, "", cmp.Or(err, failed)
		} else {
			s.turns = turns
		}
	}
	s.unauthorized = cmp.Or(s.unauthorized, err)
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

// fields are all that a toleration or a taint holds, and its value in CEL. Text that is not set reads
// as its default, and has() is false of it, as in protocol buffers: a comparison with a
// wildcard is false rather than a failure, and a wildcard can still be recognized.
type fields struct {
	declared                     *apiservercel.DeclType
	key, operator, value, effect string
	bounded                      bool
	seconds                      int64
	added                        time.Time
}

// fieldsOf returns what the judged toleration or taint holds; nothing for none.
func fieldsOf(judged *Judged) fields {
	switch toleration, taint := judged.Toleration, judged.Taint; {
	case toleration != nil:
		return fields{
			declared: tolerationType,
			key:      toleration.Key, operator: string(toleration.Operator), value: toleration.Value, effect: string(toleration.Effect),
			bounded: toleration.TolerationSeconds != nil, seconds: ptr.Deref(toleration.TolerationSeconds, 0),
		}
	case taint != nil:
		f := fields{declared: taintType, key: taint.Key, value: taint.Value, effect: string(taint.Effect)}
		if !taint.TimeAdded.IsZero() {
			f.added = taint.TimeAdded.UTC().Round(0) // without the reading of the monotonic clock
		}
		return f
	default:
		return fields{}
	}
}

// find returns the value of a field, nil if it has none, and whether it is set.
func (f *fields) find(field ref.Val) (value ref.Val, set bool) {
	name, ok := field.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(field), false
	}
	if _, ok := f.declared.Fields[string(name)]; !ok {
		return nil, false // reached through dyn()
	}
	text, unset := "", ""
	switch name {
	case "key":
		text = f.key
	case "operator":
		text, unset = f.operator, string(corev1.TolerationOpEqual)
	case "value":
		text = f.value
	case "effect":
		text = f.effect
	case "tolerationSeconds":
		if f.bounded {
			return types.Int(f.seconds), true
		}
		return nil, false
	case "timeAdded":
		if !f.added.IsZero() {
			return types.Timestamp{Time: f.added}, true
		}
		return nil, false
	}
	return types.String(cmp.Or(text, unset)), text != ""
}

// Get implements traits.Indexer.
func (f *fields) Get(index ref.Val) ref.Val {
	value, _ := f.find(index)
	if value == nil {
		return types.NewErr("no such key: %s", index)
	}
	return value
}

// IsSet implements traits.FieldTester.
func (f *fields) IsSet(field ref.Val) ref.Val {
	value, set := f.find(field)
	if types.IsError(value) {
		return value
	}
	return types.Bool(set)
}

// Equal implements ref.Val: two are equal if all their fields are.
func (f *fields) Equal(other ref.Val) ref.Val {
	o, ok := other.(*fields)
	return types.Bool(ok && *o == *f)
}

// Type implements ref.Val.
func (f *fields) Type() ref.Type { return f.declared.CelType() }

// Value implements ref.Val.
func (f *fields) Value() any { return *f }

// ConvertToNative implements ref.Val.
func (f *fields) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("convert %s to %s: not possible", f.declared.TypeName(), to)
}

// ConvertToType implements ref.Val.
func (f *fields) ConvertToType(to ref.Type) ref.Val {
	if to == types.TypeType {
		return f.declared.CelType()
	}
	return types.NewErr("type conversion error from '%s' to '%s'", f.declared.TypeName(), to.TypeName())
}
