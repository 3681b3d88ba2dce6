package handlers

import (
	"fmt"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/api/v1alpha1"
	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/policy/policyset"
)

const (
	// maxMessage bounds a denial; the API server shows all of it to the user.
	maxMessage = 4 << 10
	// maxCauses bounds the causes of a denial, which are for programs.
	maxCauses = 50
	// maxWarnings bounds the warnings of a response.
	maxWarnings = 16
	// auditViolations is the audit annotation for violations that are only recorded. The
	// API server puts the name of the webhook before it.
	auditViolations = "violations"
	// AuditPolicies is the audit annotation for the version of the policies. Replicas with the
	// same version decide alike.
	AuditPolicies = "policies"
)

// Result is the outcome of a review by a handler. The zero Result denies.
type Result struct {
	policy.Decision

	// Warnings are those that come of no finding.
	Warnings []string
	// Patch is the JSON patch of a mutating handler.
	Patch []jsonpatch.Operation
	// PolicyVersion names the policies that were looked at; empty for none.
	PolicyVersion string
}

// allowed is the result for a request that nothing has to be said about.
func allowed() Result { return Result{Decision: policy.Decision{Verdict: policy.Allowed}} }

// decided is the result of a validating handler that looked at policies; nil for none.
func decided(found []policy.Finding, warnings []string, policies *policyset.Set) Result {
	result := Result{Decision: policy.Decide(found), Warnings: warnings}
	if policies != nil {
		result.PolicyVersion = policies.Version
	}
	return result
}

// Response returns the response to the API server. Denials say everything at once, so that
// a user who fixes one does not meet the next.
func (r *Result) Response() admission.Response {
	warnings := r.Warnings
	var denials []policy.Finding
	var audits []string
	for _, finding := range r.Findings {
		if finding.Denies() {
			denials = append(denials, finding)
		}
		if finding.Has(v1alpha1.Warn) {
			warnings = append(warnings, finding.String())
		}
		if finding.Has(v1alpha1.Audit) {
			audits = append(audits, finding.String())
		}
	}
	response := admission.Response{Patches: r.Patch, AdmissionResponse: admissionv1.AdmissionResponse{
		Allowed:  r.Verdict == policy.Allowed,
		Warnings: limitWarnings(warnings),
	}}
	if len(audits) > 0 || r.PolicyVersion != "" {
		response.AuditAnnotations = make(map[string]string, 1)
	}
	if len(audits) > 0 {
		response.AuditAnnotations[auditViolations] = limitText(strings.Join(audits, "; "))
	}
	if r.PolicyVersion != "" {
		response.AuditAnnotations[AuditPolicies] = r.PolicyVersion
	}
	if !response.Allowed {
		response.Result = denial(denials)
	}
	return response
}

// denial returns the status that the user sees. Its causes are for programs: the
// reasons are those of docs/refusals.md.
func denial(denials []policy.Finding) *metav1.Status {
	status := admission.Denied("nothing allowed the request").Result
	status.Status = metav1.StatusFailure
	if len(denials) == 0 {
		return status
	}
	texts := make([]string, 0, len(denials))
	for _, finding := range denials {
		texts = append(texts, finding.String())
	}
	status.Details = &metav1.StatusDetails{Causes: causes(denials)}
	status.Message = limitText(strings.Join(texts, "; "))
	return status
}

// causes returns a cause for each denial, at most maxCauses of them. The last one says how
// many more there are.
func causes(denials []policy.Finding) []metav1.StatusCause {
	var found []metav1.StatusCause
	for i, finding := range denials {
		if i == maxCauses-1 && len(denials) > maxCauses {
			return append(found, metav1.StatusCause{Message: fmt.Sprintf("and %d more causes", len(denials)-i)})
		}
		found = append(found, metav1.StatusCause{
			Type: metav1.CauseType(finding.Reason), Field: finding.Field, Message: limitText(finding.Problem),
		})
	}
	return found
}

// findings returns the errors of Kubernetes' own rules as findings.
func findings(errs field.ErrorList) []policy.Finding {
	found := make([]policy.Finding, 0, len(errs))
	for _, err := range errs {
		found = append(found, policy.Finding{Reason: policy.Invalid, Field: err.Field, Problem: err.ErrorBody()})
	}
	return found
}

func limitWarnings(warnings []string) []string {
	if len(warnings) <= maxWarnings {
		return warnings
	}
	rest := len(warnings) - maxWarnings + 1
	return append(warnings[:maxWarnings-1:maxWarnings-1], fmt.Sprintf("and %d more warnings", rest))
}

func limitText(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + " ... (more was cut)"
}
