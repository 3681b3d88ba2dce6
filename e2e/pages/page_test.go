package pages

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// kind says what is done with a part of a page.
type kind int

const (
	// script is a block of commands.
	script kind = iota
	// console is one command of a block that shows output.
	console
	// inline is a command in the text.
	inline
	// manifest is a block of YAML.
	manifest
	// heading begins a section, before which something may be done.
	heading
)

// part is a part of a page that a reader types or applies.
type part struct {
	kind kind
	line int
	// commands are what is typed; a manifest has none.
	commands []string
	// text is the output of a command of a console, a manifest without the line that names its
	// file, or a heading.
	text string
	// file is where a manifest is written. Empty is one that is applied.
	file string
}

var (
	title    = regexp.MustCompile(`^#+ (.*)$`)
	fence    = regexp.MustCompile("^```(.*)$")
	span     = regexp.MustCompile("`([^`]+)`")
	fileName = regexp.MustCompile(`^# (\S+\.ya?ml)\n`)
	heredoc  = regexp.MustCompile(`<<-?\s*['"]?(\w+)['"]?`)
	comment  = regexp.MustCompile(`(^|\s)#\s.*$`)
)

// programsOfReaders are the words with which a command in the text begins. A word alone is the
// name of a program.
func programsOfReaders() []string {
	return []string{
		".", "bin/tollgate", "curl", "docker", "git", "go", "helm", "kube-controller-manager", "kubectl", "make", "tollgate",
	}
}

// shortened are the words with which a command of Tollgate begins that lacks its program. Nobody
// can type it.
var shortened = regexp.MustCompile(`^(approve|check|dashboard|devices|evictions|explain|export|preview|serve|simulate|status|taint|untaint|version) \S`)

// indented is a command that stands in no block.
var indented = regexp.MustCompile(`^\s+\$ `)

// parse returns the parts of a page in their order.
func parse(text string) ([]part, error) {
	var parts []part
	var paragraph, block []string
	language, opened := "", 0
	for i, line := range strings.Split(text, "\n") {
		number := i + 1
		found := fence.FindStringSubmatch(strings.TrimLeft(line, " "))
		switch {
		case found != nil && opened == 0:
			language, opened = found[1], number
		case found != nil:
			inner, err := blockParts(language, block, opened+1)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", opened, err)
			}
			parts, block, opened = append(parts, inner...), nil, 0
			continue
		case opened > 0:
			block = append(block, line)
		case title.MatchString(line):
			parts = append(parts, part{kind: heading, line: number, text: title.FindStringSubmatch(line)[1]})
		case indented.MatchString(line):
			return nil, fmt.Errorf("line %d: a command outside of a block: %q", number, line)
		case strings.TrimSpace(line) != "":
			paragraph = append(paragraph, line)
			continue
		}
		inner, err := inlines(paragraph, number-len(paragraph))
		if err != nil {
			return nil, err
		}
		parts, paragraph = append(parts, inner...), nil
	}
	if opened > 0 {
		return nil, fmt.Errorf("line %d: the block does not end", opened)
	}
	return parts, nil
}

// inlines returns the commands in the lines of a paragraph or of a table.
func inlines(lines []string, first int) ([]part, error) {
	var parts []part
	text := strings.Join(lines, "\n")
	for _, at := range span.FindAllStringSubmatchIndex(text, -1) {
		words := strings.Fields(text[at[2]:at[3]])
		line := first + strings.Count(text[:at[0]], "\n")
		if shortened.MatchString(strings.Join(words, " ")) {
			return nil, fmt.Errorf("line %d: %q lacks its program", line, strings.Join(words, " "))
		}
		if len(words) < 2 || !slices.Contains(programsOfReaders(), words[0]) {
			continue
		}
		parts = append(parts, part{kind: inline, line: line, commands: []string{strings.Join(words, " ")}})
	}
	return parts, nil
}

func blockParts(language string, lines []string, first int) ([]part, error) {
	text := strings.Join(lines, "\n") + "\n"
	switch language {
	case "sh", "bash":
		return []part{{kind: script, line: first, commands: split(lines)}}, nil
	case "console":
		return consoleParts(lines, first)
	case "yaml":
		p := part{kind: manifest, line: first, text: text}
		if name := fileName.FindStringSubmatch(text); name != nil {
			p.file, p.text = name[1], strings.TrimPrefix(text, name[0])
		}
		return []part{p}, nil
	default:
		return nil, fmt.Errorf("a block of language %q, which is none of sh, console, yaml", language)
	}
}

// consoleParts are the commands of a block, each with what is below it.
func consoleParts(lines []string, first int) ([]part, error) {
	var parts []part
	for i := 0; i < len(lines); i++ {
		typed, ok := strings.CutPrefix(lines[i], "$ ")
		if !ok {
			if len(parts) == 0 {
				return nil, fmt.Errorf("output %q before any command", lines[i])
			}
			parts[len(parts)-1].text += lines[i] + "\n"
			continue
		}
		p := part{kind: console, line: first + i}
		n := length(append([]string{typed}, lines[i+1:]...))
		p.commands = []string{strings.Join(append([]string{typed}, lines[i+1:i+n]...), "\n")}
		i += n - 1
		parts = append(parts, p)
	}
	return parts, nil
}

// split returns the commands in the lines of a script.
func split(lines []string) []string {
	var commands []string
	for len(lines) > 0 {
		n := length(lines)
		if command := strings.Join(lines[:n], "\n"); key(command) != "" {
			commands = append(commands, command)
		}
		lines = lines[n:]
	}
	return commands
}

// length is how many lines the first command has: it goes on after a backslash, and until the
// end of the here-document that it begins.
func length(lines []string) int {
	n := 1
	for n < len(lines) && strings.HasSuffix(lines[n-1], `\`) {
		n++
	}
	if end := heredoc.FindStringSubmatch(lines[n-1]); end != nil {
		for n < len(lines) && strings.TrimSpace(lines[n]) != end[1] {
			n++
		}
		n = min(n+1, len(lines))
	}
	return n
}

// key is a command as the tests name it: in one line, without a comment.
func key(command string) string {
	command = strings.ReplaceAll(command, "\\\n", " ")
	first, rest, more := strings.Cut(command, "\n")
	first = comment.ReplaceAllString(first, "")
	if more {
		first += "\n" + rest
	}
	return strings.Join(strings.Fields(first), " ")
}
