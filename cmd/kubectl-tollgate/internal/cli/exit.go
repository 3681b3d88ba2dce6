package cli

import "errors"

// Exit codes of the commands. A negative verdict differs from an error.
const (
	// ExitError: the command line, the cluster or a file is invalid.
	ExitError = 1
	// ExitVerdict: the command succeeded, and its subject does not pass.
	ExitVerdict = 2
)

// A VerdictError means that the subject of a command does not pass.
type VerdictError struct{ Reason string }

// Error implements error.
func (e *VerdictError) Error() string { return e.Reason }

// ExitCode returns the exit code of a command for its error, which may be nil.
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
