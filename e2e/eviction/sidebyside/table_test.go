package sidebyside

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

var update = flag.Bool("update", false, "write the table into docs/reliability.md")

// The table stands between these lines of docs/reliability.md.
const (
	tableBegins = "<!-- The table is written by go test ./eviction/sidebyside -update in e2e. -->\n"
	tableEnds   = "<!-- The table ends. -->\n"
)

// table returns the rows in Markdown.
func table(all []row) string {
	var b strings.Builder
	b.WriteString("| fault | story | Kubernetes: the pod | Tollgate: the pod |\n|---|---|---|---|\n")
	for _, r := range all {
		fmt.Fprintf(&b, "| %s | %s | %s (%s) | %s |\n", r.fault, r.story, r.kubernetes, r.upstream, r.tollgate)
	}
	return b.String()
}

// publish writes the table in place of the one in docs/reliability.md.
func publish(text string) error {
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "reliability.md")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(content), tableBegins)
	_, after, closed := strings.Cut(rest, tableEnds)
	if !found || !closed {
		return fmt.Errorf("%s has no lines %q and %q", path, tableBegins, tableEnds)
	}
	return os.WriteFile(path, []byte(before+tableBegins+"\n"+text+"\n"+tableEnds+after), 0o644)
}
