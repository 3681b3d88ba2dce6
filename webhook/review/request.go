package review

import (
	"errors"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is the kind of reviews.
const Kind = "AdmissionReview"

// maxUIDLength bounds the uid, which is echoed.
const maxUIDLength = 128

// Request is the request of a review. It must not be changed, and is for one goroutine: it reads
// the fields of its objects, and keeps the first error of that.
type Request struct {
	admissionv1.AdmissionRequest
	Fields

	// New is the object that is to be stored, and Old the one that is stored; null for none.
	New, Old Value
	// APIVersion is that of the review, to be answered in.
	APIVersion string
	// Unproven says that the caller has not shown that it is the API server. Such a review is
	// answered, and no other answer depends on what it says.
	Unproven bool
}

// Of returns the request that stands in the place of one that was read.
func Of(request *admissionv1.AdmissionRequest) (*Request, error) {
	r := &Request{AdmissionRequest: *request}
	for _, object := range []struct {
		raw  []byte
		into *Value
	}{{request.Object.Raw, &r.New}, {request.OldObject.Raw, &r.Old}} {
		if len(object.raw) == 0 {
			continue
		}
		var err error
		if *object.into, err = Parse(object.raw); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Reader reads reviews. Its memory is used for one after the other.
type Reader struct {
	doc  document
	body []byte
}

var readers = sync.Pool{New: func() any { return new(Reader) }}

// NewReader returns a reader, to be given back by Close.
func NewReader() *Reader { return readers.Get().(*Reader) } //nolint:forcetypeassert // Nothing else is in there.

// Bounds of the memory that a reader keeps: a review of ordinary size has less.
const (
	keptBytes  = 64 << 10
	keptValues = 4096
)

// Buffer returns memory for a body of n bytes. There is one for each review.
func (r *Reader) Buffer(n int) []byte {
	if cap(r.body) < n {
		r.body = make([]byte, n)
	}
	r.body = r.body[:n]
	return r.body
}

// Close gives the reader back. What it read must not be used any more: the body is overwritten,
// so that nothing of it reaches another review.
func (r *Reader) Close() {
	clear(r.body)
	r.doc.text = nil
	if cap(r.body) > keptBytes {
		r.body = nil
	}
	if cap(r.doc.values) > keptValues {
		r.doc.values = nil
	}
	readers.Put(r)
}

// Read returns the request of the AdmissionReview body. A name that stands twice in the envelope
// is an error, because the API server and Tollgate could each have read the other one. The
// request refers to body and to the reader.
func (r *Reader) Read(body []byte) (*Request, error) {
	review := Value{doc: &r.doc}
	err := r.doc.parse(body)
	if err == nil && !review.opens('{') {
		err = errNotObject
	}
	if err != nil {
		return nil, fmt.Errorf("decode AdmissionReview: %w", err)
	}
	var f Fields
	version, kind := f.Text(review, "apiVersion"), f.Text(review, "kind")
	response, request := f.At(review, "response"), f.At(review, "request")
	switch v1, beta := admissionv1.SchemeGroupVersion.String(), admissionv1beta1.SchemeGroupVersion.String(); {
	case f.err != nil:
		return nil, f.err
	case version != v1 && version != beta:
		return nil, fmt.Errorf("apiVersion is %q, want %q or %q", Clip(version), v1, beta)
	case kind != Kind:
		return nil, fmt.Errorf("kind is %q, want %q", Clip(kind), Kind)
	case !response.IsNull():
		return nil, errors.New("response is set, a review that asks has none")
	case request.IsNull():
		return nil, errors.New("request is missing")
	}
	req := &Request{APIVersion: version, New: f.At(request, "object"), Old: f.At(request, "oldObject")}
	req.AdmissionRequest = admissionv1.AdmissionRequest{
		UID:                types.UID(f.Text(request, "uid")),
		Kind:               metav1.GroupVersionKind(f.triple(f.At(request, "kind"), "kind")),
		Resource:           resourceOf(f.triple(f.At(request, "resource"), "resource")),
		SubResource:        f.Text(request, "subResource"),
		RequestSubResource: f.Text(request, "requestSubResource"),
		Name:               f.Text(request, "name"),
		Namespace:          f.Text(request, "namespace"),
		Operation:          admissionv1.Operation(f.Text(request, "operation")),
		UserInfo:           f.user(f.At(request, "userInfo")),
		Object:             runtime.RawExtension{Raw: req.New.Raw()},
		OldObject:          runtime.RawExtension{Raw: req.Old.Raw()},
		Options:            runtime.RawExtension{Raw: f.At(request, "options").Raw()},
	}
	if kind := f.At(request, "requestKind"); !kind.IsNull() {
		req.RequestKind = new(metav1.GroupVersionKind(f.triple(kind, "kind")))
	}
	if resource := f.At(request, "requestResource"); !resource.IsNull() {
		req.RequestResource = new(resourceOf(f.triple(resource, "resource")))
	}
	if dryRun := f.At(request, "dryRun"); !dryRun.IsNull() {
		req.DryRun = new(f.Bool(dryRun))
	}
	req.isDescribed(&f, "request.object", req.New)
	req.isDescribed(&f, "request.oldObject", req.Old)
	if f.err != nil {
		return nil, f.err
	}
	return req, req.check()
}

// isDescribed makes sure that an object is of the kind and the version that the request names:
// fields of another one would be read as if they meant the same. API servers say both, and where
// one is missing there is nothing to compare.
func (r *Request) isDescribed(f *Fields, name string, object Value) {
	if r.Kind.Kind == "" || object.IsNull() || !object.opens('{') {
		return
	}
	version, kind := f.Text(object, "apiVersion"), f.Text(object, "kind")
	want := metav1.GroupVersion{Group: r.Kind.Group, Version: r.Kind.Version}.String()
	if f.err == nil && (kind != "" && kind != r.Kind.Kind || version != "" && version != want) {
		f.err = fmt.Errorf("%s is a %q of %q, and request.kind says %q of %q",
			name, Clip(kind), Clip(version), Clip(r.Kind.Kind), Clip(want))
	}
}

// check makes sure that the objects that an operation is about are there: a handler that got no
// object could not tell an empty one from none.
func (r *Request) check() error {
	if r.UID == "" || len(r.UID) > maxUIDLength {
		return fmt.Errorf("request.uid has %d characters, want 1 to %d", len(r.UID), maxUIDLength)
	}
	needsNew, needsOld := false, false
	switch r.Operation {
	case admissionv1.Create:
		needsNew = true
	case admissionv1.Update:
		needsNew, needsOld = true, true
	case admissionv1.Delete:
		needsOld = true
	case admissionv1.Connect:
	default:
		return fmt.Errorf("request.operation is %q, want CREATE, UPDATE, DELETE or CONNECT", Clip(string(r.Operation)))
	}
	if needsNew && r.New.IsNull() {
		return fmt.Errorf("request.object is missing on %s", r.Operation)
	}
	if needsOld && r.Old.IsNull() {
		return fmt.Errorf("request.oldObject is missing on %s", r.Operation)
	}
	return nil
}

// triple has the fields of a GroupVersionKind; those of a GroupVersionResource have another name
// for the last one.
type triple struct{ Group, Version, Kind string }

func (f *Fields) triple(v Value, last string) triple {
	return triple{f.Text(v, "group"), f.Text(v, "version"), f.Text(v, last)}
}

func resourceOf(t triple) metav1.GroupVersionResource {
	return metav1.GroupVersionResource{Group: t.Group, Version: t.Version, Resource: t.Kind}
}

// user returns the user who makes the request, of bounded size.
func (f *Fields) user(v Value) authenticationv1.UserInfo {
	if !f.Fits(v) {
		return authenticationv1.UserInfo{}
	}
	user := authenticationv1.UserInfo{Username: f.Text(v, "username"), UID: f.Text(v, "uid"), Groups: f.list(v, "groups")}
	for name, values := range f.Members(v, "extra") {
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[name] = f.list(values)
	}
	return user
}

// list returns the list of strings at a path in v; nil for nothing.
func (f *Fields) list(v Value, path ...string) []string {
	v = f.At(v, path...)
	if v.IsNull() {
		return nil
	}
	list := make([]string, 0, min(v.Size()-1, fewValues))
	for _, item := range f.Items(v) {
		list = append(list, f.Text(item))
	}
	return list
}
