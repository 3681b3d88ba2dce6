package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// printTable prints sizes for reading.
func printTable(out io.Writer, measured *sizes) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "room\tpackages\tfiles\ttokens\tlines\tfunctions\tp50\tp90\t1 importer\t1 impl.\ttest tokens\t\n")
	for _, s := range measured.Rooms {
		printRow(table, s)
	}
	printRow(table, measured.Product)
	printRow(table, measured.E2E)
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for _, s := range measured.Scripts {
		if _, err := fmt.Fprintf(out, "%s: %d lines in %d files\n", s.Extension, s.Lines, s.Files); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

func printRow(table io.Writer, s size) {
	fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Room, s.Packages, s.Files, s.Tokens, s.Lines,
		s.Functions, s.P50, s.P90, len(s.OneImporter), len(s.OneImplementation), s.TestTokens)
}
