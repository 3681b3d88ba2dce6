// Package registration shows on a real control plane that the leader registers the webhooks that
// the policies in force need: nothing before a replica answers, all of it before a policy is
// Ready, and nothing after an administrator deleted the configurations.
package registration
