// Package policyset holds the policies in force, of all kinds as of one moment.
package policyset
