// Package dashboard tests the page of "kubectl tollgate dashboard" in headless Chromium: by role, by
// keyboard, with axe, and with hostile text. make test-dashboard runs it.
package dashboard
