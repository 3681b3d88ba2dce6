// Package preview holds what the commands preview, taint device and untaint device say
// against what then happens: on a real control plane with Tollgate in it, a preview is
// taken, the taint is written, and the pods that left, and when, are those foretold.
package preview
