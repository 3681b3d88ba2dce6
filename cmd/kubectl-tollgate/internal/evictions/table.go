package evictions

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tollgate-dev/tollgate/cmd/kubectl-tollgate/internal/cli"
)

// WriteTable writes a row for each pod, and nothing if there is none. A wide table has full texts
// and the source of each state. With colour, states are coloured.
func WriteTable(w io.Writer, list []Eviction, now time.Time, wide, colour bool) error {
	if len(list) == 0 {
		return nil
	}
	out := bufio.NewWriter(w)
	for i, line := range tableLines(list, now, wide) {
		if i > 0 && colour {
			line = painted(list[i-1].State, line)
		}
		_, _ = out.WriteString(line + "\n") // Flush returns the error.
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// tableLines returns the head and a line for each pod.
func tableLines(list []Eviction, now time.Time, wide bool) []string {
	head, row := []string{"NAMESPACE", "POD", "WHEN", "STATE", "REASON"}, shortRow
	if wide {
		head, row = []string{"NAMESPACE", "POD", "WHEN", "STATE", "DUE", "BY", "NODE", "TAINTS", "HOLD", "ACCORDING-TO"}, wideRow
	}
	rows := make([][]string, 0, len(list))
	for i := range list {
		rows = append(rows, row(&list[i], now))
	}
	var out bytes.Buffer
	_ = cli.Write(&out, wide, head, rows) // A buffer returns no error.
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func shortRow(e *Eviction, now time.Time) []string {
	return []string{e.Namespace, e.Name, when(e, now), string(e.State), reasonInShort(e, now)}
}

func wideRow(e *Eviction, now time.Time) []string {
	var taints []string
	for i := range e.Because {
		taints = append(taints, taintInFull(&e.Because[i], e.Writers[e.Because[i].Taint.Author()]))
	}
	by := e.By
	if e.Policy != "" {
		by += " (EvictionPolicy/" + e.Policy + ")"
	}
	hold, word := cli.None, according(e)
	if !e.Hold.None() {
		hold = e.Hold.By + ": " + e.Hold.Why
	}
	return []string{e.Namespace, e.Name, when(e, now), string(e.State), stamp(e.At), by, e.Node, strings.Join(taints, "; "), hold, word}
}

// according returns the source of the state of a pod.
func according(e *Eviction) string {
	switch {
	case e.State == Leaving:
		return "the pod"
	case !e.Hold.None():
		return e.Hold.Word
	default:
		return "computed here"
	}
}

// WriteNames writes a line with namespace/name for each pod.
func WriteNames(w io.Writer, list []Eviction) error {
	out := bufio.NewWriter(w)
	for i := range list {
		_, _ = out.WriteString(list[i].String() + "\n") // Flush returns the error.
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write names: %w", err)
	}
	return nil
}

// The colours of states, as ANSI escape codes.
const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
	plain  = "\x1b[0m"
)

// painted returns a line in the colour of a state.
func painted(state State, line string) string {
	switch state {
	case Leaving:
		return green + line + plain
	case Due, Blocked:
		return yellow + line + plain
	case Held, Paused:
		return red + line + plain
	case Waiting, Protected, Gone, Staying:
		return line
	default:
		return line
	}
}
