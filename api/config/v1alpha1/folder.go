package v1alpha1

import (
	"fmt"
	"os"
	"path/filepath"
)

// LoadPath loads a configuration as Load does, from a file, or from all files named
// *.yaml or *.yml in a folder, in the order of their names. A setting or feature gate in
// a later file overrides the one in an earlier file. An error names the file.
func LoadPath(path string) (*TollgateConfiguration, error) {
	files, err := filesOf(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	config := Default()
	for _, file := range files {
		data, err := os.ReadFile(file) //nolint:gosec // The operator names the file.
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		if err := overlay(config, data); err != nil {
			return nil, fmt.Errorf("%s: read configuration: %w", file, err)
		}
	}
	if err := config.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("%s: check configuration: %w", path, err)
	}
	return config, nil
}

// filesOf returns path itself if it is a file, and otherwise the files in the folder. A
// folder without such a file is an error, because the defaults would then apply silently.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		if extension := filepath.Ext(entry.Name()); extension == ".yaml" || extension == ".yml" {
			files = append(files, filepath.Join(path, entry.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no file named *.yaml or *.yml", path)
	}
	return files, nil
}
