package slicepatch

import (
	"fmt"
	"math/big"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
)

// maxValidValues is the limit of the API on the values that a request may ask for.
const maxValidValues = 10

func validateCapacity(c *v1alpha1.PatchedCapacity, path *field.Path) field.ErrorList {
	if c.Value == nil {
		return field.ErrorList{field.Required(path.Child("value"), "a capacity cannot be removed: give value 0 for none")}
	}
	var errs field.ErrorList
	if c.Value.Sign() < 0 {
		errs = append(errs, field.Invalid(path.Child("value"), text(c.Value), "must not be negative"))
	}
	if c.RequestPolicy != nil {
		errs = append(errs, validateRequestPolicy(c.RequestPolicy, c.Value, path.Child("requestPolicy"))...)
	}
	return errs
}

// validateRequestPolicy holds a policy against the rules of ResourceSlices.
func validateRequestPolicy(p *v1alpha1.CapacityRequestPolicy, capacity *resource.Quantity, path *field.Path) field.ErrorList {
	switch {
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path.Child("validRange"), "give validValues or validRange, not both")}
	case len(p.ValidValues) == 0 && p.ValidRange == nil:
		return nil
	case p.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "say what a request gets that does not say how much")}
	case p.ValidRange != nil:
		return validateRange(p, capacity, path)
	default:
		return validateValues(p, capacity, path)
	}
}

func validateValues(p *v1alpha1.CapacityRequestPolicy, capacity *resource.Quantity, path *field.Path) field.ErrorList {
	at := path.Child("validValues")
	if n := len(p.ValidValues); n > maxValidValues {
		return field.ErrorList{field.TooMany(at, n, maxValidValues)}
	}
	var errs field.ErrorList
	known := false
	for i := range p.ValidValues {
		value := &p.ValidValues[i]
		known = known || value.Cmp(*p.Default) == 0
		if i > 0 && value.Cmp(p.ValidValues[i-1]) <= 0 {
			errs = append(errs, field.Invalid(at.Index(i), text(value), "must be more than the one before it"))
		}
		errs = append(errs, atMost(value, "the capacity", capacity, at.Index(i))...)
	}
	if !known {
		errs = append(errs, field.Invalid(path.Child("default"), text(p.Default), "must be one of validValues"))
	}
	return errs
}

func validateRange(p *v1alpha1.CapacityRequestPolicy, capacity *resource.Quantity, path *field.Path) field.ErrorList {
	r, at := p.ValidRange, path.Child("validRange")
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "a range begins somewhere: give min, 0 if need be")}
	}
	var errs field.ErrorList
	if r.Min.Sign() < 0 {
		errs = append(errs, field.Invalid(at.Child("min"), text(r.Min), "must not be negative"))
	}
	errs = append(errs, atMost(r.Min, "the capacity", capacity, at.Child("min"))...)
	errs = append(errs, atMost(r.Min, "default", p.Default, at.Child("min"))...)
	if r.Max != nil {
		errs = append(errs, atMost(r.Min, "max", r.Max, at.Child("min"))...)
		errs = append(errs, atMost(r.Max, "the capacity", capacity, at.Child("max"))...)
		errs = append(errs, atMost(p.Default, "validRange.max", r.Max, path.Child("default"))...)
	}
	if r.Step == nil {
		return errs
	}
	step := at.Child("step")
	if r.Step.Sign() <= 0 {
		return append(errs, field.Invalid(step, text(r.Step), "must be more than 0"))
	}
	first := r.Min.DeepCopy()
	first.Add(*r.Step)
	errs = append(errs, atMost(&first, "the capacity", capacity, step)...)
	if !onStep(p.Default, r) {
		errs = append(errs, field.Invalid(path.Child("default"), text(p.Default), "must be min and a whole number of steps"))
	}
	if r.Max != nil && !onStep(r.Max, r) {
		errs = append(errs, field.Invalid(at.Child("max"), text(r.Max), "must be min and a whole number of steps"))
	}
	return errs
}

func atMost(value *resource.Quantity, what string, limit *resource.Quantity, path *field.Path) field.ErrorList {
	if value.Cmp(*limit) <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, text(value), fmt.Sprintf("must not be more than %s, which is %s", what, text(limit)))}
}

// onStep reports whether a value is min and a whole number of steps.
func onStep(value *resource.Quantity, r *v1alpha1.CapacityRequestRange) bool {
	above := nano(value)
	above.Sub(above, nano(r.Min))
	return new(big.Int).Rem(above, nano(r.Step)).Sign() == 0
}

// nano returns a quantity in units of 1e-9, the smallest that there is.
func nano(q *resource.Quantity) *big.Int {
	const scale = 9
	own := q.DeepCopy() // AsDec writes to it
	dec := own.AsDec()
	n := new(big.Int).Set(dec.UnscaledBig())
	shift := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale-int(dec.Scale()), int(dec.Scale())-scale))), nil)
	if int(dec.Scale()) > scale {
		return n.Quo(n, shift)
	}
	return n.Mul(n, shift)
}

// text returns a quantity as it is written. String writes to what it is called on.
func text(q *resource.Quantity) string {
	own := q.DeepCopy()
	return own.String()
}
