// Package release shows that a release is built from its tag, and that Tollgate is installed from what was published of
// it and from nothing else.
//
// The image and the chart go through a registry on this machine, and the files through a web server. The pods of Tollgate
// run the program that was pulled from the registry. Of the signatures those by a key are tried; a signature without a key
// takes an identity that a build service vouches for.
//
// Its control plane is its own: Tollgate is installed and uninstalled, and its pods run as processes, in a network that the
// API server is started with.
package release
