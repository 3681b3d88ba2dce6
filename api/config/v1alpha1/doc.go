// Package v1alpha1 defines the configuration file of tollgate serve, group
// config.tollgate.dev, version v1alpha1. Tollgate reads the file once, at the start. An
// unknown, misspelt, repeated or invalid setting is an error that names the setting.
//
// +kubebuilder:object:generate=true
package v1alpha1
