package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// document is a bill of materials, as https://spdx.github.io/spdx-spec/v2.3 has it.
type document struct {
	Version       string         `json:"spdxVersion"`
	License       string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []part         `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

// part is a module, which SPDX calls a package.
type part struct {
	ID            string      `json:"SPDXID"`
	Name          string      `json:"name"`
	Version       string      `json:"versionInfo"`
	Location      string      `json:"downloadLocation"`
	FilesAnalyzed bool        `json:"filesAnalyzed"`
	SourceInfo    string      `json:"sourceInfo,omitempty"`
	License       string      `json:"licenseDeclared"`
	Checksums     []checksum  `json:"checksums,omitempty"`
	References    []reference `json:"externalRefs"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	Element string `json:"spdxElementId"`
	Type    string `json:"relationshipType"`
	Related string `json:"relatedSpdxElement"`
}

// noAssertion is how SPDX says nothing.
const noAssertion = "NOASSERTION"

// writeSBOMs writes one document for each program into a directory.
func writeSBOMs(dir string, programs []*program) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what was built before: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // It is no secret.
		return fmt.Errorf("create directory: %w", err)
	}
	for _, p := range programs {
		content, err := json.MarshalIndent(sbom(p), "", "  ")
		if err != nil {
			return fmt.Errorf("encode SBOM: %w", err)
		}
		path := filepath.Join(dir, "tollgate-"+p.os+"-"+p.architecture+".spdx.json")
		if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil { //nolint:gosec // It is no secret.
			return fmt.Errorf("write SBOM: %w", err)
		}
	}
	return nil
}

// sbom lists the modules that a program was built from, and the standard library. What
// license they have is not known from the program.
func sbom(p *program) document {
	digest := sha256.Sum256(p.content)
	sum := hex.EncodeToString(digest[:])
	main := module("SPDXRef-tollgate", &p.info.Main)
	main.License = "Apache-2.0"
	main.Location = "git+" + source + "@" + p.revision
	main.Checksums = []checksum{{"SHA256", sum}}
	d := document{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT",
		Name:      "tollgate " + p.version() + " for " + p.os + "/" + p.architecture,
		Namespace: source + "/sbom/" + sum,
		Creation:  creation{p.committed.UTC().Format(time.RFC3339), []string{"Tool: tollgate-image"}},
		Packages:  []part{main},
		Relationships: []relationship{
			{"SPDXRef-DOCUMENT", "DESCRIBES", main.ID},
		},
	}
	library := debug.Module{Path: "stdlib", Version: strings.TrimPrefix(p.info.GoVersion, "go")}
	for i, dependency := range append([]*debug.Module{&library}, p.info.Deps...) {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		depends := module("SPDXRef-module-"+strconv.Itoa(i), dependency)
		d.Packages = append(d.Packages, depends)
		d.Relationships = append(d.Relationships, relationship{main.ID, "DEPENDS_ON", depends.ID})
	}
	return d
}

func module(id string, m *debug.Module) part {
	p := part{
		ID: id, Name: m.Path, Version: m.Version, Location: noAssertion, License: noAssertion,
		References: []reference{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")}},
	}
	if m.Sum != "" {
		p.SourceInfo = "go.sum: " + m.Sum
	}
	return p
}
