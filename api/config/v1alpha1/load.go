package v1alpha1

import (
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Load parses a configuration file, YAML or JSON, on top of the defaults and validates
// it. Keys are case-sensitive. An unknown or repeated key is an error that names the key.
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

// overlay decodes a file into config. Fields that the file does not set keep their
// values.
func overlay(config *TollgateConfiguration, data []byte) error {
	// The conversion rejects repeated keys of YAML.
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return err
	}
	// Each file must have apiVersion and kind.
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
