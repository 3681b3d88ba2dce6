package webhook

import "context"

// stranger is the key of contexts in which reviews are judged of a caller that has not shown
// that it is the API server.
type stranger struct{}

// fromStranger returns a context for a review that anybody may have sent. What it says is
// answered, and nothing that others are told depends on it.
func fromStranger(ctx context.Context) context.Context {
	return context.WithValue(ctx, stranger{}, true)
}

func isFromStranger(ctx context.Context) bool {
	return ctx.Value(stranger{}) != nil
}
