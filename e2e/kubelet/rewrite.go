package kubelet

import (
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// mount says where on this machine the folder is that a container knows by a path.
type mount struct {
	// path is the path in the container.
	path string
	// dir is the path on this machine.
	dir string
}

// rewriter turns what holds in a container into what holds on this machine.
type rewriter struct {
	mounts  []mount
	address podAddress
}

// path returns where the file is that is named in the container. What is in no mount is
// returned as it is.
func (r rewriter) path(name string) string {
	best := mount{}
	for _, m := range r.mounts {
		at := path.Clean(m.path)
		if (name == at || strings.HasPrefix(name, at+"/")) && len(at) > len(best.path) {
			best = mount{path: at, dir: m.dir}
		}
	}
	if best.path == "" {
		return name
	}
	return filepath.Join(best.dir, strings.TrimPrefix(name, best.path))
}

// argument rewrites a path, also one that follows a flag: --config=/etc/tollgate.yaml.
func (r rewriter) argument(argument string) string {
	if flag, name, ok := strings.Cut(argument, "="); ok && strings.HasPrefix(flag, "-") {
		return flag + "=" + r.path(name)
	}
	return r.path(argument)
}

func (r rewriter) arguments(arguments []string) []string {
	out := slices.Clone(arguments)
	for i := range out {
		out[i] = r.argument(out[i])
	}
	return out
}

// kindOfConfig is the kind of configuration that addresses and paths are rewritten in.
const kindOfConfig = "TollgateConfiguration"

// defaultAddresses are what Tollgate listens on where its configuration is silent. Here it
// must not be: every pod would listen on the same.
func defaultAddresses() map[string]string {
	return map[string]string{"webhook": ":9443", "metrics": "127.0.0.1:8080", "health": "127.0.0.1:8081"}
}

// configurations rewrites those files that are configurations of Tollgate. Whether they are
// ones that Tollgate takes is for Tollgate to say. Later ones in a folder are on top of
// earlier ones, so the first is given what has a default.
func (r rewriter) configurations(files map[string]string) (map[string]string, error) {
	first := true
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var config map[string]any
		if err := yaml.Unmarshal([]byte(files[name]), &config); err != nil || config["kind"] != kindOfConfig {
			continue // A file of another kind need not be YAML.
		}
		if first {
			setAddresses(config)
		}
		first = false
		out, err := yaml.Marshal(r.value("", config))
		if err != nil {
			return nil, fmt.Errorf("encode configuration %s: %w", name, err)
		}
		files[name] = string(out)
	}
	return files, nil
}

func setAddresses(config map[string]any) {
	for section, address := range defaultAddresses() {
		if config[section] == nil {
			config[section] = map[string]any{}
		}
		if inner, ok := config[section].(map[string]any); ok && inner["bindAddress"] == nil {
			inner["bindAddress"] = address
		}
	}
}

// value rewrites a setting, and all that are below it.
func (r rewriter) value(name string, value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			value[key] = r.value(key, inner)
		}
	case []any:
		for i, inner := range value {
			value[i] = r.value(name, inner)
		}
	case string:
		if name == "bindAddress" {
			return r.address.listen(value)
		}
		return r.path(value)
	}
	return value
}
