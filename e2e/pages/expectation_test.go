package pages

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tolerance is how much a time that a page shows may differ from what a test sees. It is far
// more than a test takes, and far less than the times that a page is about.
const tolerance = time.Minute

// alphabet is what the API server makes names from.
const alphabet = "[bcdfghjklmnpqrstvwxz2456789]"

// volatile is what differs between two runs of the same commands. Here is all of it.
var volatile = regexp.MustCompile(strings.Join([]string{
	// The time of a write.
	`(?P<time>\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z)`,
	`(?P<uid>\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b)`,
	// A pod of a Deployment, or its ReplicaSet with the hash of the template.
	`(?P<name>\b[a-z][a-z0-9-]*?-` + alphabet + `{8,10}-` + alphabet + `{5}\b)`,
	// How old something is, how long it takes, and until when it lasts.
	`(?P<duration>\b(?:\d+(?:\.\d+)?(?:ms|[smhd]))+\b)`,
}, "|"))

// expectation is what a page says that a command prints.
//
// White space of any amount is the same: columns are as wide as what is in them, and a page
// breaks the lines that a terminal would. What volatile matches may differ, but is of the same
// class: durations differ by the tolerance at most, and a generated name has the same prefix. A
// name stands for the same object wherever the page has it.
type expectation struct {
	pattern *regexp.Regexp
	// parts are the volatile parts of the page, one for each group of the pattern.
	parts []string
	// classes are their classes.
	classes []string
}

func expect(text string) (*expectation, error) {
	e := &expectation{}
	var pattern strings.Builder
	pattern.WriteString(`^\s*`)
	between := ""
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "..." && between == "":
			pattern.WriteString(`(?s:.*\s)?`)
			continue
		case line == "...":
			pattern.WriteString(`(?s:\s.*)?`)
			continue
		}
		pattern.WriteString(between)
		e.add(&pattern, line)
		between = `\s+`
	}
	pattern.WriteString(`\s*$`)
	var err error
	e.pattern, err = regexp.Compile(pattern.String())
	return e, err
}

// add appends the pattern of a line.
func (e *expectation) add(pattern *strings.Builder, line string) {
	literal := func(text string) {
		for i, word := range regexp.MustCompile(`\s+`).Split(text, -1) {
			if i > 0 {
				pattern.WriteString(`\s+`)
			}
			pattern.WriteString(regexp.QuoteMeta(word))
		}
	}
	end := 0
	for _, at := range volatile.FindAllStringSubmatchIndex(line, -1) {
		literal(line[end:at[0]])
		end = at[1]
		e.parts = append(e.parts, line[at[0]:at[1]])
		e.classes = append(e.classes, class(at))
		pattern.WriteString(`([\w.:-]+)`)
	}
	literal(line[end:])
}

// class is the name of the group of volatile that matched.
func class(match []int) string {
	for i, name := range volatile.SubexpNames() {
		if i > 0 && name != "" && match[2*i] >= 0 {
			return name
		}
	}
	return ""
}

// names are what the generated names of a page are called here.
type names map[string]string

// in is a command of the page with the names of here.
func (n names) in(command string) string {
	for shown, actual := range n {
		command = strings.ReplaceAll(command, shown, actual)
	}
	return command
}

// compare reports how the output differs from what the page says. If it does not, the names in
// it are learnt.
func (e *expectation) compare(output string, known names) error {
	found := e.pattern.FindStringSubmatch(output)
	if found == nil {
		return errors.New("the output is another one")
	}
	learnt := names{}
	for i, shown := range e.parts {
		actual := found[i+1]
		if e.classes[i] == "name" {
			if earlier, ok := known[shown]; ok && earlier != actual {
				return fmt.Errorf("%s is %s here, and was %s before", shown, actual, earlier)
			}
			learnt[shown] = actual
		}
		if err := same(e.classes[i], shown, actual); err != nil {
			return err
		}
	}
	maps.Copy(known, learnt)
	return nil
}

// same compares two parts that may differ.
func same(class, shown, actual string) error {
	at := volatile.FindStringSubmatchIndex(actual)
	if at == nil || at[0] != 0 || at[1] != len(actual) {
		return fmt.Errorf("the page has the %s %s, and the output has %s", class, shown, actual)
	}
	switch class {
	case "duration":
		difference := parseDuration(shown) - parseDuration(actual)
		if difference.Abs() > tolerance {
			return fmt.Errorf("the page has the duration %s, and the output has %s, which differs by more than %s", shown, actual, tolerance)
		}
	case "name":
		if prefix(shown) != prefix(actual) {
			return fmt.Errorf("the page has the name %s, and the output has %s", shown, actual)
		}
	}
	return nil
}

var generated = regexp.MustCompile(`-` + alphabet + `{8,10}-` + alphabet + `{5}$`)

func prefix(name string) string { return generated.ReplaceAllString(name, "") }

var unit = regexp.MustCompile(`(\d+(?:\.\d+)?)(ms|[smhd])`)

// parseDuration reads the durations of Kubernetes, which have days.
func parseDuration(text string) time.Duration {
	var sum time.Duration
	for _, found := range unit.FindAllStringSubmatch(text, -1) {
		number, _ := strconv.ParseFloat(found[1], 64)
		each := map[string]time.Duration{
			"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour,
		}[found[2]]
		sum += time.Duration(number * float64(each))
	}
	return sum
}
