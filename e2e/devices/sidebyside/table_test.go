package sidebyside

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tollgate-dev/tollgate/e2e/binaries"
)

var update = flag.Bool("update", false, "write the table into docs/parity.md")

// The table stands between these lines of docs/parity.md.
const (
	tableBegins = "<!-- The table is written by go test ./devices/sidebyside -update in e2e. -->\n"
	tableEnds   = "<!-- The table ends. -->\n"
)

// table returns the outcomes in Markdown.
func table(all []scenario, builtin, tollgate []outcome) string {
	var b strings.Builder
	b.WriteString("| scenario | rules | Kubernetes | Tollgate |\n|---|---|---|---|\n")
	for i, s := range all {
		second := "the same"
		if tollgate[i].String() != builtin[i].String() {
			second = fmt.Sprintf("%s (%s)", tollgate[i], s.differs)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s.name, s.rules, builtin[i], second)
	}
	return b.String()
}

// publish writes the table in place of the one in docs/parity.md, or at its end.
func publish(text string) error {
	root, err := binaries.Root(".")
	if err != nil {
		return err
	}
	path := filepath.Join(root, "docs", "parity.md")
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(content), tableBegins)
	_, after, closed := strings.Cut(rest, tableEnds)
	if !found || !closed {
		before, after = string(content)+"\n## Scenarios of tainted devices, side by side\n\n", ""
	}
	return os.WriteFile(path, []byte(before+tableBegins+"\n"+text+"\n"+tableEnds+after), 0o644)
}
