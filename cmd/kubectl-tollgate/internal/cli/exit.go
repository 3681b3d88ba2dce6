package cli

import "errors"

// Exit codes of the commands. That the answer is no is told apart from that there is none.
const (
	// ExitError: the command line, the cluster or a file is not as it has to be.
	ExitError = 1
	// ExitVerdict: the command has done its work, and what it was asked about does not
	// pass.
	ExitVerdict = 2
)

// A VerdictError says that what was asked about does not pass.
type VerdictError struct{ Reason string }

// Error implements error.
func (e *VerdictError) Error() string { return e.Reason }

// ExitCode returns what a command exits with that ends with an error, or with nil.
func ExitCode(err error) int {
	var verdict *VerdictError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &verdict):
		return ExitVerdict
	default:
		return ExitError
	}
}
