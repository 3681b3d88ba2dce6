// Package v1alpha1 defines the configuration file of tollgate serve, group
// config.tollgate.dev, version v1alpha1. The file is read once at the start; an unknown,
// misspelt, repeated or invalid setting is an error that names it.
//
// +kubebuilder:object:generate=true
package v1alpha1
