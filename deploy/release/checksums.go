package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// checksums is the file with the SHA-256 of all others, as sha256sum --check reads it.
const checksums = "checksums.txt"

func (r *release) writeChecksums(context.Context) error {
	var text strings.Builder
	for _, name := range slices.Sorted(slices.Values(r.assets)) {
		content, err := os.ReadFile(r.path(name))
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		text.WriteString(sum(content) + "  " + name + "\n")
	}
	return r.write(checksums, []byte(text.String()))
}
