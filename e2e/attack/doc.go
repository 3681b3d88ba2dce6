// Package attack sends Tollgate what a pod without any rights can send to its port, as much of it
// as an attacker would, beside reviews as an API server sends them, and looks at what becomes of
// those, and of the memory, the processors and the goroutines of Tollgate.
//
// Ordinarily it takes about a minute and asserts no times. With TOLLGATE_ATTACK=2m, as make
// test-attack runs it, the attack lasts as long, and slows ordinary reviews down by no more than
// a factor of two. Tollgate then has the memory of a container, in control groups that only root
// can make.
//
// Its control plane is its own: nothing but the attack may slow reviews down, or take memory.
package attack
