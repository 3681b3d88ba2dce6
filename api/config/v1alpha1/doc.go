// Package v1alpha1 holds the configuration file of tollgate serve, group
// config.tollgate.dev, version v1alpha1. It is read once at the start; an
// unknown, misspelt, repeated or bad setting stops the start and is named.
//
// +kubebuilder:object:generate=true
package v1alpha1
