package webhook

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tollgate-dev/tollgate/policy"
	"github.com/tollgate-dev/tollgate/webhook/auth"
)

// Review judges a request, of the API server or of somebody in this process, and returns what
// the response was made of beside it. An error means that no decision could be made.
func (e *Endpoint) Review(ctx context.Context, req admission.Request) (admission.Response, []policy.Finding, error) {
	var told []policy.Finding
	ctx = auth.InNamespace(ctx, req.Namespace)
	response, err := e.judge(context.WithValue(ctx, listener{}, &told), req)
	return response, told, err
}

// ErrUnfollowed is the error of a review that a limit on affected pods stands in the way of,
// where the pods are not followed.
var ErrUnfollowed = errors.New("pods are not followed")

// listener is the key of a context whose owner is told of decisions.
type listener struct{}

// tell tells whoever listens what a decision was made of. A response has it as text, for
// users, which cannot be taken apart again.
func tell(ctx context.Context, decision policy.Decision) {
	if told, ok := ctx.Value(listener{}).(*[]policy.Finding); ok {
		*told = slices.Concat(*told, decision.Findings)
	}
}
