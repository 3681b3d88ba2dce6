// Command image builds the container image of Tollgate, without a container engine.
//
// The image is a directory in the OCI image layout: one index, with one image for each
// platform. An image has no base. There is nothing in it but the program, a link to it by
// the name that kubectl looks for, and the license, so there is no shell and no library to
// patch. It runs as the user 65532, and writes no file.
//
// What the image says about itself is read from the program, where the go command wrote
// it: version, commit and modules. The same commit gives the same bytes, wherever it is
// built, as long as the version of Go is the same: times are that of the commit, paths are
// not written, and settings of the environment that change the program are set here.
package main
