// Package attack sends Tollgate what a pod without any rights can send to its port, as much of it
// as an attacker would, beside reviews as an API server sends them, and looks at what becomes of
// those.
//
// Ordinarily it takes some seconds and asserts no times. With TOLLGATE_ATTACK=2m, as make
// test-attack runs it, the attack lasts as long, and slows ordinary reviews down by no more than
// a factor of two.
//
// Its control plane is its own: nothing but the attack may slow reviews down.
package attack
