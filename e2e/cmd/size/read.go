package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// repository is what is read of a repository.
type repository struct {
	files   []*file
	scripts []script
}

// file is a Go file.
type file struct {
	// path is relative to the root of the repository, with slashes.
	path string
	// pkg is the import path of its folder.
	pkg       string
	syntax    *ast.File
	positions *token.FileSet
	tokens    int
	lines     int
	test      bool
	generated bool
}

// script is a file with code that is not Go.
type script struct {
	extension string
	lines     int
}

// room returns the folder at the root of the repository that a file is in.
func (f *file) room() string {
	first, _, below := strings.Cut(f.path, "/")
	if !below {
		return "."
	}
	return first
}

// counts tells whether a file is part of the code of its room.
func (f *file) counts() bool {
	return !f.test && !f.generated
}

func readRepository(root string) (*repository, error) {
	modules, err := readModules(root)
	if err != nil {
		return nil, err
	}
	var repo repository
	err = walk(root, func(name string) error {
		switch extension := path.Ext(name); extension {
		case ".go":
			f, err := readFile(root, name)
			if err != nil {
				return err
			}
			f.pkg = importPath(modules, path.Dir(name))
			repo.files = append(repo.files, f)
		case ".sh", ".css", ".js", ".html":
			content, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // It is a file of the repository.
			if err != nil {
				return fmt.Errorf("read file: %w", err)
			}
			repo.scripts = append(repo.scripts, script{extension: extension, lines: linesOf(content)})
		}
		return nil
	})
	return &repo, err
}

// walk calls a function for every file that counts, with its path from the root.
func walk(root string, visit func(name string) error) error {
	err := filepath.WalkDir(root, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, full)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && isLeftOut(entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		return visit(filepath.ToSlash(name))
	})
	if err != nil {
		return fmt.Errorf("read folder: %w", err)
	}
	return nil
}

func isLeftOut(folder string) bool {
	return folder == "testdata" || folder == "bin" || strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_")
}

// readModules returns the paths of the repository's modules by their folders.
func readModules(root string) (map[string]string, error) {
	modules := map[string]string{}
	err := walk(root, func(name string) error {
		if path.Base(name) != "go.mod" {
			return nil
		}
		content, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // It is a file of the repository.
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(content)) {
			if module, found := strings.CutPrefix(line, "module "); found {
				modules[path.Dir(name)] = strings.TrimSpace(module)
			}
		}
		return nil
	})
	return modules, err
}

// importPath returns the import path of a folder, by the module nearest above it.
func importPath(modules map[string]string, folder string) string {
	for at := folder; ; at = path.Dir(at) {
		if module, found := modules[at]; found {
			if at == "." {
				return path.Join(module, folder)
			}
			return path.Join(module, strings.TrimPrefix(folder, at))
		}
		if at == "." {
			return folder
		}
	}
}

func readFile(root, name string) (*file, error) {
	content, err := os.ReadFile(filepath.Join(root, name)) //nolint:gosec // It is a file of the repository.
	if err != nil {
		return nil, fmt.Errorf("read file: %w", err)
	}
	positions := token.NewFileSet()
	syntax, err := parser.ParseFile(positions, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse file: %w", err)
	}
	return &file{
		path:      name,
		syntax:    syntax,
		positions: positions,
		tokens:    tokensOf(content),
		lines:     linesOf(content),
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(syntax),
	}, nil
}

// tokensOf counts the tokens of Go code as the scanner returns them, without comments and
// with the semicolons that end lines.
func tokensOf(content []byte) int {
	positions := token.NewFileSet()
	var s scanner.Scanner
	s.Init(positions.AddFile("", positions.Base(), len(content)), content, nil, 0)
	var count int
	for {
		if _, tok, _ := s.Scan(); tok == token.EOF {
			return count
		}
		count++
	}
}

func linesOf(content []byte) int {
	count := bytes.Count(content, []byte("\n"))
	if len(content) > 0 && !bytes.HasSuffix(content, []byte("\n")) {
		count++
	}
	return count
}

// functionsOf returns how many lines each function with a body has, sorted.
func functionsOf(files []*file) []int {
	var all []int
	for _, f := range files {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
				all = append(all, f.positions.Position(fn.Body.Rbrace).Line-f.positions.Position(fn.Type.Func).Line+1)
			}
		}
	}
	slices.Sort(all)
	return all
}
