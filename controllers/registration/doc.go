// Package registration writes the webhooks through which the API server calls Tollgate: those
// that webhook/registration derives from the policies in force.
//
// The leader writes them into two configurations that are installed without webhooks. It never
// creates one: it has no right to, and each write is a merge patch with the UID and the
// resourceVersion that were read, which the API server refuses for another object or for none.
// So a deleted configuration stays deleted: an administrator stops Tollgate by deleting it.
//
// A merge patch replaces the whole list of webhooks. Server-side apply would leave what another
// writer adds to an entry, such as a match condition that is always false.
//
// The leader adds webhooks from the first ready endpoint on. While no endpoint is ready, it repairs
// the webhooks that exist and adds none: the API server would refuse pods, because no replica
// answers. The CA bundle comes from an annotation that package certs writes, because the process
// that leads may have no right to read the Secret of the CA.
//
// A webhook goes a minute after the last policy that needed it, so that every replica has
// dropped that policy, and not because of a policy that is not valid or cannot be read. An
// annotation of the configurations has the reasons for the webhooks, so that the next leader
// knows which those before it had.
package registration
