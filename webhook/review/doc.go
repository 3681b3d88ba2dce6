// Package review reads AdmissionReviews. The text is read once: Parse checks that it is JSON in
// UTF-8 and within the bounds, and notes where each value stands. Handlers then read the fields
// that they need by Fields; nothing else is decoded.
//
// What a decoder of Kubernetes (sigs.k8s.io/json) accepts is accepted, and means the same, but for
// these: text that is not valid UTF-8, nested deeper than 500 levels, or with more values than
// 20,000 and one for every eight bytes; an object that has a name twice which is read; and a
// field with more values than its reader takes.
package review
