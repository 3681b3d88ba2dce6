package cel

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	celcommon "k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/tollgate-dev/tollgate/policy"
)

// seen is what the expressions of a review have looked at so far.
type seen struct {
	documents          []document
	request, namespace ref.Val
}

// document is JSON and what it decodes to. Its bytes are told by where they are:
// nobody changes them during a review.
type document struct {
	raw   []byte
	value ref.Val
}

// decode returns JSON in CEL, as the API server gives it to the expressions of
// admission policies: whole numbers are int, and quantities and times are text.
func (s *seen) decode(raw []byte) (ref.Val, error) {
	if len(raw) == 0 {
		return types.NullValue, nil
	}
	for _, d := range s.documents {
		if &d.raw[0] == &raw[0] && len(d.raw) == len(raw) {
			return d.value, nil
		}
	}
	var decoded any
	if err := kjson.Unmarshal(raw, &decoded); err != nil {
		return nil, err
	}
	value := types.DefaultTypeAdapter.NativeToValue(decoded)
	s.documents = append(s.documents, document{raw: raw, value: value})
	return value, nil
}

// scope is what one evaluation sees. It implements interpreter.Activation.
type scope struct {
	review *Review
	judged *Judged
	asks   asking
	broken error
}

// ResolveName returns a variable. What cannot be read is remembered as a fault: the
// API server sends no such thing.
func (s *scope) ResolveName(name string) (any, bool) {
	value, err := s.resolve(name)
	if err != nil {
		s.broken = fmt.Errorf("read %s: %w", name, err)
		return types.NewErr("%s cannot be read", name), true
	}
	return value, value != nil
}

// Parent implements interpreter.Activation.
func (s *scope) Parent() interpreter.Activation { return nil }

// fault returns why the result is none: it rests on something that nobody could say.
func (s *scope) fault() error { return errors.Join(s.broken, s.asks.err) }

// resolve returns nil for a name that nothing has.
func (s *scope) resolve(name string) (ref.Val, error) {
	r := s.review
	switch name {
	case admissioncel.ObjectVarName:
		return r.shared().seen.decode(r.request().Object.Raw)
	case admissioncel.OldObjectVarName:
		return r.shared().seen.decode(r.request().OldObject.Raw)
	case podVar:
		return r.shared().seen.decode(s.judged.Pod)
	case claimVar:
		return r.shared().seen.decode(s.judged.Claim)
	case tolerationVar:
		return tolerationValue(s.judged.Toleration)
	case taintVar:
		return taintValue(s.judged.Taint)
	case operationVar:
		return types.String(s.judged.Operation), nil
	case admissioncel.RequestVarName:
		return r.requestValue(), nil
	case admissioncel.NamespaceVarName:
		return r.namespaceValue(), nil
	case admissioncel.AuthorizerVarName:
		user := r.request().UserInfo
		return library.NewAuthorizerVal(policy.UserInfo(&user), &s.asks), nil
	case admissioncel.RequestResourceAuthorizerVarName:
		user := r.request().UserInfo
		return library.NewResourceAuthorizerVal(policy.UserInfo(&user), &s.asks, asked{r.request()}), nil
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

// requestValue returns request without what an admission policy does not see in it.
func (r *Review) requestValue() ref.Val {
	known := &r.shared().seen
	if known.request == nil {
		known.request = types.NullValue
		if r.Request != nil {
			request := *r.Request
			request.UID, request.Object, request.OldObject = "", runtime.RawExtension{}, runtime.RawExtension{}
			known.request = celcommon.SchemalessTypedToVal(&request)
		}
	}
	return known.request
}

func (r *Review) namespaceValue() ref.Val {
	known := &r.shared().seen
	if known.namespace == nil {
		known.namespace = celcommon.SchemalessTypedToVal(admissioncel.CreateNamespaceObject(r.Namespace))
	}
	return known.namespace
}

// asking puts the questions of an expression, and keeps the first error: to an
// expression a check that could not be made looks like one that was refused.
type asking struct {
	ask func(authorizer.Attributes) (authorizer.Decision, string, error)
	err error
}

var errNobodyToAsk = errors.New("nobody can be asked what is authorized")

// asker returns what asks the authorizer, until ctx ends: the library of Kubernetes
// gives its own context, which never does.
func (r *Review) asker(ctx context.Context) func(authorizer.Attributes) (authorizer.Decision, string, error) {
	return func(attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if r.Authorizer == nil {
			return authorizer.DecisionNoOpinion, "", errNobodyToAsk
		}
		return r.Authorizer.Authorize(ctx, attributes)
	}
}

// Authorize implements authorizer.UnconditionalAuthorizer.
func (a *asking) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	decision, reason, err := a.ask(attributes)
	if err != nil && a.err == nil {
		a.err = err
	}
	return decision, reason, err
}

// asked is the resource of a request, for authorizer.requestResource: the one that
// was asked for, not the one it was converted to.
type asked struct {
	request *admissionv1.AdmissionRequest
}

func (a asked) GetName() string      { return a.request.Name }
func (a asked) GetNamespace() string { return a.request.Namespace }

func (a asked) GetResource() schema.GroupVersionResource {
	resource := a.request.Resource
	if a.request.RequestResource != nil {
		resource = *a.request.RequestResource
	}
	return gvr(resource)
}

func (a asked) GetSubresource() string {
	if a.request.RequestResource != nil {
		return a.request.RequestSubResource
	}
	return a.request.SubResource
}

func gvr(r metav1.GroupVersionResource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
}
