// Package evictions shows that the commands evictions and approve tell the truth about
// what Tollgate does on a control plane: who has to leave, when, and what keeps them.
package evictions
