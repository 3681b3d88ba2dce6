// Package inforce holds the policies that reviews are judged by, of all kinds as of
// one moment.
package inforce
