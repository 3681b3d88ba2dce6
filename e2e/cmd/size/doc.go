// Command size prints how much Go code the repository has, by room, which is what "make size" is.
//
// A room is a folder at the root of the repository. The product is the code of all modules but
// e2e, without generated files and without tests. Folders named testdata or bin, and those whose
// names begin with a dot or an underscore, are left out.
//
// Files are parsed and not type-checked, so nothing is compiled. A type implements an interface
// if it has methods with the names of all of its methods, and with the same text of parameters and
// results after names of packages are replaced by import paths. Methods of embedded types and
// interfaces count where these are declared in the repository. Interfaces without methods or
// without a name, interfaces that embed one from elsewhere, interfaces with type parameters and
// constraints are left out.
package main
