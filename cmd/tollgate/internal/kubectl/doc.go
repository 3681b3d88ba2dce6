// Package kubectl is what the commands share that people run: they find the cluster as
// kubectl does, read it as the user, a chunk at a time, and say what takes long and what
// went wrong.
package kubectl
