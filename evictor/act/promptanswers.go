package act

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// PromptAnswers wraps the transport of the client that evicts. The answers of an API
// server that has too much to do, or is not well, are handed back at once: client-go would
// wait in their place for as long as they ask, up to ten times, and keep a worker busy for
// one pod meanwhile (I01, G18). What failed with 5xx may also have been done: the answer to
// the same request made again would hide that (INV-5). How long they ask to wait is still
// told, by the body.
func PromptAnswers(next http.RoundTripper) http.RoundTripper {
	return promptAnswers{next}
}

type promptAnswers struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p promptAnswers) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := p.next.RoundTrip(request)
	if err != nil || (response.StatusCode != http.StatusTooManyRequests && response.StatusCode < 500) {
		return response, err
	}
	after, given := response.Header["Retry-After"]
	response.Header.Del("Retry-After")
	// Priority and fairness and proxies answer with text. A Status says itself for how long to wait.
	if !given || !strings.HasPrefix(response.Header.Get("Content-Type"), "text/") {
		return response, nil
	}
	// A Status as the body says what the header said.
	message, err := io.ReadAll(io.LimitReader(response.Body, longestMessage))
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	seconds, err := strconv.ParseInt(after[0], 10, 32)
	if err != nil {
		seconds = 1
	}
	status := apierrors.NewGenericServerResponse(response.StatusCode, "", schema.GroupResource{}, "", "", int(seconds), false).Status()
	status.TypeMeta, status.Message = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, strings.TrimSpace(string(message))
	body, _ := json.Marshal(status) // Strings and numbers can be encoded.
	response.Header.Set("Content-Type", "application/json")
	response.Header.Del("Content-Length")
	response.ContentLength = int64(len(body))
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
