package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Who the evictors are to the API server. The built-in one of nodes acts as the
// service account of the node controllers.
const (
	tollgateUser      = "system:serviceaccount:tollgate-system:tollgate"
	builtinNodeUser   = "system:serviceaccount:kube-system:node-controller"
	builtinDeviceUser = "system:serviceaccount:kube-system:device-taint-eviction-controller"
)

// auditMegabytes is more than a run writes: the log must not be rotated away
// from under its reader.
const auditMegabytes = 4096

// auditPolicy writes down each request of the evictors about pods, nodes, devices
// and events, refused ones too, when it has been answered. Metrics of the API server
// count the requests of everyone together.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [` + tollgateUser + `, ` + builtinNodeUser + `, ` + builtinDeviceUser + `, ` + loopUser + `]
  verbs: [get, create, update, patch, delete, deletecollection]
  resources:
  - group: ""
    resources: [pods, pods/status, pods/eviction, nodes, nodes/status, events]
  - group: events.k8s.io
    resources: [events]
  - group: resource.k8s.io
    resources: [devicetaintrules, devicetaintrules/status, resourceslices, resourceclaims]
- level: None
`

func writeAuditPolicy() (string, error) {
	file, err := os.CreateTemp("", "audit-policy-*.yaml")
	if err != nil {
		return "", fmt.Errorf("create audit policy: %w", err)
	}
	_, err = file.WriteString(auditPolicy)
	if err := errors.Join(err, file.Close()); err != nil {
		return "", fmt.Errorf("write audit policy: %w", err)
	}
	return file.Name(), nil
}

// auditEvent is what is read of an entry, an Event of audit.k8s.io/v1.
type auditEvent struct {
	Verb string `json:"verb"`
	User struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// requests counts what one user asked of the API server, each try for itself.
type requests struct {
	gets, marks, deletes, events, others int
	// deleted are the deletions that were accepted.
	deleted int
	// throttled and conflicts are the answers 429 and 409.
	throttled, conflicts int
}

func (r *requests) add(e auditEvent) {
	switch {
	case e.ObjectRef.Resource == "events":
		r.events++
	case e.ObjectRef.Resource != "pods":
		r.others++
	case e.Verb == "get":
		r.gets++
	case e.Verb == "patch" && e.ObjectRef.Subresource == "status":
		r.marks++
	case e.Verb == "delete", e.Verb == "create" && e.ObjectRef.Subresource == "eviction":
		r.deletes++
		if e.ResponseStatus.Code < 300 {
			r.deleted++
		}
	default:
		r.others++
	}
	switch e.ResponseStatus.Code {
	case 409:
		r.conflicts++
	case 429:
		r.throttled++
	}
}

func (r *requests) total() int { return r.gets + r.marks + r.deletes + r.events + r.others }

func (r *requests) perPod(pods int) float64 { return float64(r.total()) / float64(pods) }

// auditLog is the file that the API server writes to.
type auditLog struct{ path string }

// size is where an entry written from now on begins, or after.
func (l auditLog) size() (int64, error) {
	info, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read audit log: %w", err)
	}
	return info.Size(), nil
}

// since counts the requests of a user from an offset on.
func (l auditLog) since(offset int64, user string) (requests, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return requests{}, fmt.Errorf("read audit log: %w", err)
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return requests{}, fmt.Errorf("read audit log: %w", err)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return requests{}, fmt.Errorf("read audit log: %w", err)
	}
	return countRequests(content, user)
}

// countRequests counts the requests of a user in whole lines; a last one that is
// still being written has no end yet.
func countRequests(content []byte, user string) (requests, error) {
	var count requests
	content = content[:bytes.LastIndexByte(content, '\n')+1]
	for line := range bytes.Lines(content) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return requests{}, fmt.Errorf("read entry of audit log: %w", err)
		}
		if e.User.Username == user {
			count.add(e)
		}
	}
	return count, nil
}

// silence is how long an evictor must have asked nothing to be taken for done.
const silence = 2 * time.Second

// settled returns what a user asked from an offset on once it asks no more:
// events are often written after the evictions they tell of.
func (l auditLog) settled(ctx context.Context, offset int64, user string) (requests, error) {
	ticker := time.NewTicker(silence)
	defer ticker.Stop()
	last, err := l.since(offset, user)
	for err == nil {
		select {
		case <-ctx.Done():
			return requests{}, fmt.Errorf("wait for %s to be silent: %w", user, ctx.Err())
		case <-ticker.C:
		}
		var now requests
		if now, err = l.since(offset, user); err == nil && now == last {
			return now, nil
		}
		last = now
	}
	return requests{}, err
}
