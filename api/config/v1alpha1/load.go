package v1alpha1

import (
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load reads a configuration from the bytes of its file, YAML or JSON, fills the
// defaults and checks it. Keys are compared with their case; an unknown or
// repeated one is an error that names it.
func Load(data []byte) (*TollgateConfiguration, error) {
	config := Default()
	if err := overlay(config, data); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if err := config.Validate().ToAggregate(); err != nil {
		return nil, fmt.Errorf("check configuration: %w", err)
	}
	return config, nil
}

// overlay reads a file on top of what config has.
func overlay(config *TollgateConfiguration, data []byte) error {
	// The conversion is what finds keys that stand twice in YAML.
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	// Each file says what it is.
	config.APIVersion, config.Kind = "", ""
	strict, err := kjson.UnmarshalStrict(asJSON, config)
	if err != nil {
		return err
	}
	if err := errors.Join(strict...); err != nil {
		return err
	}
	if config.APIVersion != APIVersion || config.Kind != Kind {
		return fmt.Errorf("apiVersion and kind are %q and %q, want %q and %q",
			config.APIVersion, config.Kind, APIVersion, Kind)
	}
	return nil
}
