package pages

// unrun is a command that is not run here.
type unrun struct {
	page, command, reason string
}

// elsewhere are all commands that are on a page and are not run here. Each must be on its page.
func elsewhere() []unrun {
	return nil
}
