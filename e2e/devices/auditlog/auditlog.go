// Package auditlog reads from the audit log of an API server what was asked for.
package auditlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Log is an audit log.
type Log struct{ path string }

// New returns a log in a directory, and the arguments by which an API server writes
// into it what the policy says.
func New(dir, policy string) (Log, []string, error) {
	policyPath := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policyPath, []byte(policy), 0o600); err != nil {
		return Log{}, nil, fmt.Errorf("write audit policy: %w", err)
	}
	log := Log{path: filepath.Join(dir, "audit.log")}
	// Blocking, so that a request that was answered is in the log.
	return log, []string{"--audit-policy-file=" + policyPath, "--audit-log-path=" + log.path, "--audit-log-mode=blocking"}, nil
}

// Read returns the requests that were answered so far and that a filter lets
// through, in their order.
func (l Log) Read(keep func(*auditv1.Event) bool) ([]auditv1.Event, error) {
	content, err := os.ReadFile(l.path)
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	var events []auditv1.Event
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		// The last line may be half written.
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.ObjectRef != nil && keep(&event) {
			events = append(events, event)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	return events, nil
}

// Count counts requests by verb, resource and the code of the answer, such as
// "patch pods/status 200".
func Count(events []auditv1.Event) map[string]int {
	counts := map[string]int{}
	for i := range events {
		resource := events[i].ObjectRef.Resource
		if events[i].ObjectRef.Subresource != "" {
			resource += "/" + events[i].ObjectRef.Subresource
		}
		counts[fmt.Sprintf("%s %s %d", events[i].Verb, resource, events[i].ResponseStatus.Code)]++
	}
	return counts
}

// Deletion is a pod that was deleted.
type Deletion struct {
	types.NamespacedName
	// UID is the one that the request named, if it was logged with its body.
	UID types.UID
	At  time.Time
}

// Deletions returns the pods that were deleted, in the order of the answers.
func Deletions(events []auditv1.Event) []Deletion {
	var deletions []Deletion
	for i := range events {
		event := &events[i]
		if event.Verb != "delete" || event.ObjectRef.Resource != "pods" || event.ResponseStatus.Code != http.StatusOK {
			continue
		}
		deletion := Deletion{
			NamespacedName: types.NamespacedName{Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name},
			At:             event.RequestReceivedTimestamp.UTC(),
		}
		var options metav1.DeleteOptions
		if event.RequestObject != nil && json.Unmarshal(event.RequestObject.Raw, &options) == nil &&
			options.Preconditions != nil && options.Preconditions.UID != nil {
			deletion.UID = *options.Preconditions.UID
		}
		deletions = append(deletions, deletion)
	}
	return deletions
}
