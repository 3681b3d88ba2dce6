package auth

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// specOf puts a question as the API server takes it. The groups are in order, so that
// the same user asks the same.
func specOf(attributes authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if who := attributes.GetUser(); who != nil {
		spec.User, spec.UID, spec.Extra = who.GetName(), who.GetUID(), extraOf(who)
		spec.Groups = slices.Sorted(slices.Values(who.GetGroups()))
	}
	if !attributes.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: attributes.GetPath(), Verb: attributes.GetVerb()}
		return spec
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace:   attributes.GetNamespace(),
		Verb:        attributes.GetVerb(),
		Group:       attributes.GetAPIGroup(),
		Version:     attributes.GetAPIVersion(),
		Resource:    attributes.GetResource(),
		Subresource: attributes.GetSubresource(),
		Name:        attributes.GetName(),
	}
	// Requirements only narrow a question. What cannot be read of them is left out,
	// and the question is the wider one.
	if required, _ := attributes.GetFieldSelector(); len(required) > 0 {
		spec.ResourceAttributes.FieldSelector = fieldsOf(required)
	}
	if required, _ := attributes.GetLabelSelector(); len(required) > 0 {
		spec.ResourceAttributes.LabelSelector = labelsOf(required)
	}
	return spec
}

func extraOf(who user.Info) map[string]authorizationv1.ExtraValue {
	given := who.GetExtra()
	if len(given) == 0 {
		return nil
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(given))
	for name, values := range given {
		extra[name] = values
	}
	return extra
}

func fieldsOf(required fields.Requirements) *authorizationv1.FieldSelectorAttributes {
	var selector authorizationv1.FieldSelectorAttributes
	for _, r := range required {
		requirement := metav1.FieldSelectorRequirement{Key: r.Field, Values: []string{r.Value}}
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			requirement.Operator = metav1.FieldSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			requirement.Operator = metav1.FieldSelectorOpNotIn
		case selection.Exists, selection.DoesNotExist, selection.GreaterThan, selection.LessThan:
			continue // not said of fields
		}
		selector.Requirements = append(selector.Requirements, requirement)
	}
	if len(selector.Requirements) == 0 {
		return nil
	}
	return &selector
}

func labelsOf(required labels.Requirements) *authorizationv1.LabelSelectorAttributes {
	var selector authorizationv1.LabelSelectorAttributes
	for _, r := range required {
		requirement := metav1.LabelSelectorRequirement{Key: r.Key(), Values: r.Values().List()}
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			requirement.Operator = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			requirement.Operator = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			requirement.Operator, requirement.Values = metav1.LabelSelectorOpExists, nil
		case selection.DoesNotExist:
			requirement.Operator, requirement.Values = metav1.LabelSelectorOpDoesNotExist, nil
		case selection.GreaterThan, selection.LessThan:
			continue // not said in a review
		}
		selector.Requirements = append(selector.Requirements, requirement)
	}
	if len(selector.Requirements) == 0 {
		return nil
	}
	return &selector
}

// key tells questions apart. It is a digest of all that is asked: nobody finds two
// questions with the same one, and the names and tickets of users are not kept.
type key [sha256.Size]byte

// keyOf returns the key of a question. Every list and text goes in after its length,
// so that no text can pass for the end of another.
func keyOf(spec *authorizationv1.SubjectAccessReviewSpec) key {
	b := make(buffer, 0, 512)
	b.texts(spec.User, spec.UID)
	b.list(spec.Groups)
	b.number(len(spec.Extra))
	for _, name := range slices.Sorted(maps.Keys(spec.Extra)) {
		b.texts(name)
		b.list(spec.Extra[name])
	}
	if r := spec.ResourceAttributes; r != nil {
		b.texts("resource", r.Namespace, r.Verb, r.Group, r.Version, r.Resource, r.Subresource, r.Name)
		if s := r.FieldSelector; s != nil {
			b.texts("fields")
			b.number(len(s.Requirements))
			for _, requirement := range s.Requirements {
				b.texts(requirement.Key, string(requirement.Operator))
				b.list(requirement.Values)
			}
		}
		if s := r.LabelSelector; s != nil {
			b.texts("labels")
			b.number(len(s.Requirements))
			for _, requirement := range s.Requirements {
				b.texts(requirement.Key, string(requirement.Operator))
				b.list(requirement.Values)
			}
		}
	}
	if n := spec.NonResourceAttributes; n != nil {
		b.texts("path", n.Path, n.Verb)
	}
	return sha256.Sum256(b)
}

type buffer []byte

func (b *buffer) number(n int) { *b = binary.AppendUvarint(*b, uint64(max(n, 0))) }

func (b *buffer) texts(texts ...string) {
	for _, text := range texts {
		b.number(len(text))
		*b = append(*b, text...)
	}
}

func (b *buffer) list(texts []string) {
	b.number(len(texts))
	b.texts(texts...)
}
