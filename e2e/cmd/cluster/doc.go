// Command cluster keeps a local control plane with Tollgate in it, which is what "make cluster-up" and "make cluster-down" are.
//
// It lives in .cluster/ at the root of the repository: kubeconfig is the
// administrator's, logs/ has a file for each process, env can be sourced by a
// shell and has the ports and process ids. The processes outlive the command;
// "cluster down" ends exactly those.
package main
