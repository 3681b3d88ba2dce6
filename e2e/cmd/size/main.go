package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

// help explains the columns.
const help = `Usage: size [-json]

Prints how much Go code the repository has, by room, which is a folder at its root. The
product is all modules but e2e, without generated files and without tests.

  packages      folders with Go files that count
  files         Go files but tests
  tokens        tokens of go/scanner, without comments, with the semicolons that end lines
  lines         lines of these files
  functions     functions and methods with a body; p50 and p90 of their lines, from func
                to the closing brace
  1 importer    packages that exactly one other package imports; imports of tests do not
                count, nor do those of e2e for packages of the product
  1 impl.       interfaces with exactly one implementation; see below
  test tokens   tokens of _test.go files

Implementations are found by the names of methods and the text of their signatures, not by
types: code is parsed and not compiled. Interfaces with type parameters, constraints,
interfaces without methods or without a name, and interfaces that embed one from outside
the repository are left out, and a type that has a method from an embedded type of
another module is not seen to have it. Types of e2e count for interfaces of e2e alone.

-json prints the same with the names of these packages and interfaces.

`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("size", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Usage = func() { fmt.Fprint(errOut, help) }
	asJSON := flags.Bool("json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return 0
		}
		return 1
	}
	if err := printSizes(out, *asJSON); err != nil {
		fmt.Fprintf(errOut, "size: %v\n", err)
		return 1
	}
	return 0
}

func printSizes(out io.Writer, asJSON bool) error {
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	measured, err := measure(root)
	if err != nil {
		return err
	}
	if !asJSON {
		return printTable(out, measured)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(measured); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
