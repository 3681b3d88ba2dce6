// Package subjects says whether a requester is among those that a policy names:
// users, groups and service accounts as RBAC writes them, or whoever RBAC itself
// allows a verb on a taint key.
//
// Names are compared whole, and nothing is read into them: a user who is called
// system:node:evil is that user and no node.
package subjects
