package check

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// extensions are those of the files in a directory that are read.
var extensions = []string{".yaml", ".yml", ".json"}

// ReadManifests returns the objects in files and directories, in the order of paths; - is stdin.
// Of a directory all files are read that end in .yaml, .yml or .json, also in directories
// below it, and those that hold something else than objects are left out: values of Helm,
// say. Hidden ones are not looked at.
func ReadManifests(paths []string, stdin io.Reader) ([]Object, error) {
	var objects []Object
	for _, path := range paths {
		found, err := readPath(path, stdin)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

func readPath(path string, stdin io.Reader) ([]Object, error) {
	if path == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return Parse(Stdin, text)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if !info.IsDir() {
		return readFile(path)
	}
	return readDirectory(path)
}

func readFile(path string) ([]Object, error) {
	text, err := os.ReadFile(path) //nolint:gosec // Whoever runs it names the file.
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	return Parse(path, text)
}

func readDirectory(directory string) ([]Object, error) {
	files, err := Files(directory)
	if err != nil {
		return nil, err
	}
	var objects []Object
	for _, file := range files {
		found, err := readFile(file)
		if err != nil && !IsNotObject(err) {
			return nil, err
		}
		objects = append(objects, found...)
	}
	return objects, nil
}

// Files returns the files with manifests in a directory and below it, sorted; path itself
// if it is a file. Path may be a symbolic link; links to directories below it are not
// followed, because they may lead back.
func Files(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("look for manifests: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = fs.WalkDir(os.DirFS(path), ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case at != "." && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case !entry.IsDir() && slices.Contains(extensions, filepath.Ext(at)):
			files = append(files, filepath.Join(path, at))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for manifests: %w", err)
	}
	return files, nil
}
