package main

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
)

// tests is the room of the module whose code tests the product.
const tests = "e2e"

// sizes are those of a repository.
type sizes struct {
	Rooms   []size        `json:"rooms"`
	Product size          `json:"product"`
	E2E     size          `json:"e2e"`
	Scripts []scriptLines `json:"scripts"`
}

// size is that of the code of a room, or of more than one.
type size struct {
	Room      string `json:"room"`
	Packages  int    `json:"packages"`
	Files     int    `json:"files"`
	Tokens    int    `json:"tokens"`
	Lines     int    `json:"lines"`
	Functions int    `json:"functions"`
	P50       int    `json:"functionLinesP50"`
	P90       int    `json:"functionLinesP90"`
	// OneImporter are packages with exactly one importer.
	OneImporter []string `json:"packagesWithOneImporter"`
	// OneImplementation are interfaces with exactly one implementation.
	OneImplementation []string `json:"interfacesWithOneImplementation"`
	TestTokens        int      `json:"testTokens"`
}

// scriptLines says how many lines of code other than Go there are in the repository.
type scriptLines struct {
	Extension string `json:"extension"`
	Files     int    `json:"files"`
	Lines     int    `json:"lines"`
}

func measure(root string) (*sizes, error) {
	repo, err := readRepository(root)
	if err != nil {
		return nil, err
	}
	rooms := map[string][]*file{}
	var product []*file
	for _, f := range repo.files {
		rooms[f.room()] = append(rooms[f.room()], f)
		if f.room() != tests {
			product = append(product, f)
		}
	}
	ofProduct := findSingles(product)
	measured := sizes{
		Product: sizeOf("product", product, ofProduct),
		E2E:     sizeOf(tests, rooms[tests], findSingles(repo.files)),
		Scripts: sumScripts(repo.scripts),
	}
	for _, room := range slices.Sorted(maps.Keys(rooms)) {
		if room != tests {
			measured.Rooms = append(measured.Rooms, sizeOf(room, rooms[room], ofProduct))
		}
	}
	return &measured, nil
}

// sizeOf measures files.
func sizeOf(room string, all []*file, single singles) size {
	s := size{Room: room, OneImporter: []string{}, OneImplementation: []string{}}
	var counted []*file
	packages := map[string]bool{}
	for _, f := range all {
		switch {
		case f.test:
			s.TestTokens += f.tokens
		case f.counts():
			counted = append(counted, f)
			packages[f.pkg] = true
			s.Files++
			s.Tokens += f.tokens
			s.Lines += f.lines
		}
	}
	lines := functionsOf(counted)
	s.Packages, s.Functions = len(packages), len(lines)
	s.P50, s.P90 = percentile(lines, 50), percentile(lines, 90)
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		if single.imported[pkg] {
			s.OneImporter = append(s.OneImporter, pkg)
		}
		s.OneImplementation = append(s.OneImplementation, single.implemented[pkg]...)
	}
	return s
}

// percentile returns the nearest rank of sorted numbers.
func percentile(sorted []int, percent int) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

// singles are packages and interfaces that are used once.
type singles struct {
	// imported has the packages that exactly one package imports.
	imported map[string]bool
	// implemented has the interfaces with exactly one implementation, by package.
	implemented map[string][]string
}

// findSingles finds them among files, of which tests do not count.
func findSingles(files []*file) singles {
	importers := map[string]map[string]bool{}
	for _, f := range files {
		if f.test {
			continue
		}
		for _, spec := range f.syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // The parser accepts none of these.
			}
			if importers[imported] == nil {
				importers[imported] = map[string]bool{}
			}
			importers[imported][f.pkg] = true
		}
	}
	found := singles{imported: map[string]bool{}, implemented: map[string][]string{}}
	for imported, by := range importers {
		found.imported[imported] = len(by) == 1
	}
	types := declaredTypes(files)
	for _, name := range types.withOneImplementation() {
		found.implemented[name.pkg] = append(found.implemented[name.pkg], path.Base(name.pkg)+"."+name.name)
	}
	return found
}

func sumScripts(scripts []script) []scriptLines {
	sums := map[string]scriptLines{}
	for _, extension := range []string{".sh", ".css", ".js", ".html"} {
		sums[extension] = scriptLines{Extension: extension}
	}
	for _, s := range scripts {
		sum := sums[s.extension]
		sum.Files++
		sum.Lines += s.lines
		sums[s.extension] = sum
	}
	return slices.SortedFunc(maps.Values(sums), func(a, b scriptLines) int { return cmp.Compare(a.Extension, b.Extension) })
}
