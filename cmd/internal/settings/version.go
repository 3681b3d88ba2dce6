package settings

import (
	"runtime"
	"runtime/debug"
)

// Version returns the version of the module that the program was built from: the tag of the
// commit, without a tag a pseudo-version with its time and hash, with +dirty where the
// working tree had changes. It is "(devel)" where the go command did not look at git.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// Origin returns the version on the first line, then the commit, if the go command recorded it.
func Origin() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Version() + "\n"
	}
	commit := ""
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			commit = "commit " + setting.Value + "\n"
		}
	}
	return Version() + "\n" + commit + info.GoVersion + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n"
}
