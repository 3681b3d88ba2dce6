package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// heading begins the section of a version in the changelog, such as "## v0.1.0 - 2026-12-01".
var heading = regexp.MustCompile(`(?m)^## (\S+)(?: - (\S+))?[ \t]*$`)

// date is how a heading says when the version was released.
var date = regexp.MustCompile(`^\d{4}-\d\d-\d\d$`)

// notes returns the section of a version in the changelog, without its heading.
func notes(changelog, version string) (string, error) {
	headings := heading.FindAllStringSubmatchIndex(changelog, -1)
	for i, at := range headings {
		if changelog[at[2]:at[3]] != version {
			continue
		}
		if at[4] < 0 || !date.MatchString(changelog[at[4]:at[5]]) {
			return "", fmt.Errorf("CHANGELOG.md: the heading of %s has no date: write it as ## %s - 2026-12-31", version, version)
		}
		end := len(changelog)
		if i+1 < len(headings) {
			end = headings[i+1][0]
		}
		text := strings.TrimSpace(changelog[at[1]:end])
		if text == "" {
			return "", fmt.Errorf("CHANGELOG.md: the section of %s is empty: say what users see of it", version)
		}
		return text + "\n", nil
	}
	return "", fmt.Errorf("CHANGELOG.md has no section for %s: rename Unreleased to ## %s - 2026-12-31, with the date of the release", version, version)
}

// writeNotes writes the notes of the release: what changed, and how the release is verified.
func (r *release) writeNotes(context.Context) error {
	text := r.notes + "\n## Artifacts\n\n" +
		"- Image: `" + r.image() + ":" + r.version + "@" + r.digest + "`\n" +
		"- Chart: `oci://" + r.registry + "/charts/tollgate`, version `" + strings.TrimPrefix(r.version, "v") + "`\n" +
		"- Commit: `" + r.commit + "`\n\n" +
		"`checksums.txt` has the SHA-256 of each file, and `checksums.txt.sigstore.json` its signature.\n"
	return r.write("notes.md", []byte(text))
}

// write writes a file of the release.
func (r *release) write(name string, content []byte) error {
	if err := os.WriteFile(r.path(name), content, 0o644); err != nil { //nolint:gosec // It is no secret.
		return fmt.Errorf("write %s: %w", name, err)
	}
	r.assets = append(r.assets, name)
	return nil
}
