package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// outcome is what came of a fault.
type outcome string

const (
	caught    outcome = "caught"
	notCaught outcome = "NOT CAUGHT"
	// broken means that the source with the fault does not compile.
	broken outcome = "DOES NOT COMPILE"
	// stale means that the file is another one than that for which the fault was written.
	stale outcome = "STALE"
)

// result is an outcome and what led to it.
type result struct {
	outcome outcome
	// why is the test that failed, or what is wrong with the fault.
	why string
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, FailedBuild string
}

// resultOf reads the output of go test -json. Of the tests that failed it names the first to
// end, which is the innermost.
func resultOf(output io.Reader) (result, error) {
	var test, build string
	failed, hung := false, false
	var compiler strings.Builder
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return result{}, fmt.Errorf("decode output of go test: %w", err)
		}
		hung = hung || strings.HasPrefix(e.Output, "panic: test timed out after")
		switch e.Action {
		case "build-output":
			compiler.WriteString(e.Output)
		case "fail":
			failed = true
			if test == "" {
				test = e.Test
			}
			if build == "" {
				build = e.FailedBuild
			}
		}
	}
	if err := lines.Err(); err != nil {
		return result{}, fmt.Errorf("read output of go test: %w", err)
	}
	switch {
	case build != "":
		return result{broken, strings.TrimSpace(compiler.String())}, nil
	case !failed:
		return result{notCaught, ""}, nil
	case hung:
		return result{caught, strings.TrimSpace("by " + test + " which did not end")}, nil
	case test == "":
		return result{caught, "by a process that ended"}, nil
	}
	return result{caught, "by " + test}, nil
}
