package check

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook"
)

// Judged reports whether the creation of such an object is judged at all.
func (c *Checker) Judged(object *unstructured.Unstructured) bool {
	k, ok := kindOf(object)
	if !ok {
		return false
	}
	placed := object
	if k.namespaced && object.GetNamespace() == "" {
		placed = object.DeepCopy()
		c.place(placed)
	}
	switch {
	case k.namespaced:
		return !c.outside(placed.GetNamespace())
	case k.resource == "namespaces":
		return !c.outside(object.GetName())
	default:
		return true
	}
}

// Judge judges the creation of an object that Judged reports, by somebody.
func (c *Checker) Judge(ctx context.Context, object Object, by Subject) Result {
	o := object.DeepCopy()
	c.place(o)
	result := Result{
		Position: object.Position, APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: nameOf(o),
	}
	c.pace.step()
	if err := c.judge(ctx, o, by, &result); err != nil {
		result.Verdict, result.Message = Undecided, err.Error()
	}
	return result
}

// nameOf returns the name of an object, with a star where it is still to be generated.
func nameOf(o *unstructured.Unstructured) string {
	if o.GetName() == "" && o.GetGenerateName() != "" {
		return o.GetGenerateName() + "*"
	}
	return o.GetName()
}

func (c *Checker) judge(ctx context.Context, o *unstructured.Unstructured, by Subject, result *Result) error {
	k, _ := kindOf(o)
	typed, err := c.read(&k, o)
	if err != nil {
		return err
	}
	if err := c.server.Admit(ctx, typed); err != nil {
		return err
	}
	if k.mutated && mutates(typed, by) {
		if typed, err = c.give(ctx, &k, typed, o, by, result); err != nil {
			return err
		}
	}
	if !asked(typed) {
		result.Verdict = Allowed
		return nil
	}
	if err := c.nodes.need(ctx, typed); err != nil {
		return err
	}
	req, err := request(&k, typed, o, by)
	if err != nil {
		return err
	}
	review, err := c.validate.Review(ctx, req)
	if err != nil {
		return explained(err)
	}
	result.Findings, result.Warnings = findingsOf(review.Findings), review.Warnings
	if response := review.Response(); !response.Allowed {
		result.Message = response.Result.Message
	}
	result.conclude(review.Verdict == policy.Allowed)
	return nil
}

// read returns an object as its type, in the version that it is judged in.
func (c *Checker) read(k *kind, o *unstructured.Unstructured) (runtime.Object, error) {
	gvk := o.GroupVersionKind()
	if !k.reads(gvk.Version) {
		return nil, fmt.Errorf("apiVersion is %s, of which nothing is known here: want version %s", o.GetAPIVersion(), strings.Join(k.versions, " or "))
	}
	gvk.Version = k.versions[0]
	o.SetGroupVersionKind(gvk)
	typed, err := c.world.scheme.New(gvk)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", gvk.Kind, err)
	}
	if err := DecodeStrict(o, typed); err != nil {
		return nil, err
	}
	fillOwn(typed)
	return typed, nil
}

// request returns the request that the API server asks about.
func request(k *kind, typed runtime.Object, o *unstructured.Unstructured, by Subject) (*admission.Request, error) {
	content, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	gvk, resource := k.judgedAs(o.GroupVersionKind().GroupKind())
	return &admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: uidOf(o), Kind: gvk, Resource: resource, RequestKind: &gvk, RequestResource: &resource,
		Name: o.GetName(), Namespace: namespaceOf(k, o), Operation: admissionv1.Create, DryRun: new(false), UserInfo: by.UserInfo(),
		Object:  runtime.RawExtension{Raw: content},
		Options: runtime.RawExtension{Raw: []byte(`{"apiVersion":"meta.k8s.io/v1","kind":"CreateOptions"}`)},
	}}, nil
}

// namespaceOf returns the namespace of a request: of a Namespace it is its own.
func namespaceOf(k *kind, o *unstructured.Unstructured) string {
	if k.resource == "namespaces" {
		return o.GetName()
	}
	return o.GetNamespace()
}

// uidOf makes up a UID: the same for the same object, another for another.
func uidOf(o *unstructured.Unstructured) types.UID {
	const short = 16 // bytes; there is nobody to fool with it
	sum := sha256.Sum256([]byte(o.GroupVersionKind().String() + "/" + o.GetNamespace() + "/" + nameOf(o)))
	return types.UID(hex.EncodeToString(sum[:short]))
}

// identityOf returns the UID of an object, and makes one up where it has none.
func identityOf(o *unstructured.Unstructured) types.UID {
	return cmp.Or(o.GetUID(), uidOf(o))
}

// explained says of a review that could not be decided what may be done about it.
func explained(err error) error {
	if errors.Is(err, webhook.ErrUnfollowed) {
		return errors.New("a TaintPolicy limits how many pods the taint may affect, and it is not known which pods run: " +
			"ask the cluster itself, by kubectl apply --dry-run=server")
	}
	return err
}
