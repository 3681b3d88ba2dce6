package webhook_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tollgate-dev/tollgate/webhook"
)

// The corpus is what the webhook answers to reviews, byte for byte: testdata/corpus/README.md
// says how it is laid out. Its cluster is loaded in corpus_cluster_test.go, and
// corpus_coverage_test.go says what it has to hold.
const corpus = "testdata/corpus"

var update = flag.Bool("update", false, "write what the webhook answers into testdata/corpus, to be reviewed")

// recorded is a review with its answer, as a file of the corpus has them.
type recorded struct {
	// Settings are the names of those under which the webhook differs from one that has
	// everything switched on.
	Settings []string `json:"settings,omitempty"`
	// Sent says in which way the request differs from one of an API server.
	Sent *sent `json:"sent,omitempty"`
	// Review is the body, which is sent without white space.
	Review json.RawMessage `json:"review,omitempty"`
	// Body is the body where that is no JSON of a review.
	Body   string          `json:"body,omitempty"`
	Answer json.RawMessage `json:"answer"`
}

// sent is what a request has of its own beside its body.
type sent struct {
	Method          string `json:"method,omitempty"`
	Query           string `json:"query,omitempty"`
	ContentType     string `json:"contentType,omitempty"`
	ContentEncoding string `json:"contentEncoding,omitempty"`
	// Spaces are put behind the body, so many of them.
	Spaces int `json:"spaces,omitempty"`
}

// answered is all that counts of an answer.
type answered struct {
	Status int               `json:"status"`
	Header map[string]string `json:"header"`
	// Body is the text of the body or, where that is JSON, its bytes, with the patch decoded.
	Body json.RawMessage `json:"body"`
}

// countedHeaders are the fields of a header that count. Others are of the connection.
var countedHeaders = []string{"Content-Type", "Retry-After", "Www-Authenticate", "Warning"}

// recording is a file of the corpus.
type recording struct {
	recorded

	// name is the path of the file below the corpus without its ending, and endpoint is the
	// first part of it.
	name, endpoint string
}

func (r *recording) file() string { return filepath.Join(corpus, filepath.FromSlash(r.name)+".json") }

// request returns the request of the review, nil where the body is none.
func (r *recording) request(t *testing.T) *admissionv1.AdmissionRequest {
	t.Helper()
	if len(r.Review) == 0 {
		return nil
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(r.Review, &review); err != nil {
		return nil
	}
	return review.Request
}

// response returns the status of the answer and the AdmissionResponse in it, nil for none.
func (r *recording) response(t *testing.T) (int, *response) {
	t.Helper()
	var answer struct {
		Status int             `json:"status"`
		Body   json.RawMessage `json:"body"`
	}
	require.NoError(t, json.Unmarshal(r.Answer, &answer), r.name)
	var review struct {
		Response *response `json:"response"`
	}
	if answer.Status != http.StatusOK {
		return answer.Status, nil
	}
	require.NoError(t, json.Unmarshal(answer.Body, &review), r.name)
	require.NotNil(t, review.Response, r.name)
	return answer.Status, review.Response
}

// response is what the corpus is searched for.
type response struct {
	Allowed bool            `json:"allowed"`
	Patch   json.RawMessage `json:"patch"`
	Status  struct {
		Details struct {
			Causes []struct {
				Reason string `json:"reason"`
			} `json:"causes"`
		} `json:"details"`
	} `json:"status"`
	Warnings         []string          `json:"warnings"`
	AuditAnnotations map[string]string `json:"auditAnnotations"`
}

// readCorpus returns all recordings in the order of their names.
func readCorpus(t *testing.T) []*recording {
	t.Helper()
	var all []*recording
	require.NoError(t, filepath.WalkDir(corpus, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".json" {
			return err
		}
		below, err := filepath.Rel(corpus, path)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.ToSlash(below), ".json")
		endpoint, _, _ := strings.Cut(name, "/")
		r := &recording{name: name, endpoint: endpoint}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&r.recorded); err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		all = append(all, r)
		return nil
	}))
	require.NotEmpty(t, all)
	return all
}

func TestTheCorpus(t *testing.T) {
	cluster := loadCluster(t)
	for _, r := range readCorpus(t) {
		t.Run(r.name, func(t *testing.T) {
			got := indented(t, r.post(t, serving(t, cluster, r.Settings)))
			if *update {
				r.Answer = got
				require.NoError(t, os.WriteFile(r.file(), append(indented(t, r.recorded), '\n'), 0o600))
			}
			require.Equal(t, string(indented(t, r.Answer)), string(got), "go test ./webhook -run TestTheCorpus -update writes what is answered now")
		})
	}
}

// serving returns the URL of a server that serves the endpoints on their paths. Nothing that
// one review left behind counts for another.
func serving(t *testing.T, c *cluster, settings []string) string {
	t.Helper()
	listening := httptest.NewServer(handlerOf(c.config(t, settings)))
	t.Cleanup(listening.Close)
	return listening.URL
}

// handlerOf serves the endpoints on their paths.
func handlerOf(config webhook.Config) http.Handler {
	server := webhook.NewServer(webhook.ServerOptions{Budget: config.Budget, Metrics: config.Metrics})
	server.Register(webhook.PathMutate, webhook.Mutate(config))
	server.Register(webhook.PathValidate, webhook.Validate(config))
	return server.WebhookMux()
}

// post sends the review to its endpoint and returns the answer.
func (r *recording) post(t *testing.T, url string) answered {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute, DisableKeepAlives: true}}
	resp, err := client.Do(r.httpRequest(t, url))
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return answerOf(t, resp, text)
}

// ask is post without a connection.
func (r *recording) ask(t *testing.T, handler http.Handler) answered {
	t.Helper()
	answer, request := httptest.NewRecorder(), r.httpRequest(t, "http://tollgate.example.com")
	handler.ServeHTTP(answer, request)
	if request.Method == http.MethodHead {
		answer.Body.Reset() // A server sends no body.
	}
	return answerOf(t, answer.Result(), answer.Body.Bytes())
}

// httpRequest returns the request that the recording says.
func (r *recording) httpRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	body := []byte(r.Body)
	if len(r.Review) > 0 {
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, r.Review))
		body = compact.Bytes()
	}
	how := sent{Method: http.MethodPost, Query: "timeout=3s", ContentType: "application/json"}
	if r.Sent != nil {
		require.NoError(t, json.Unmarshal(indented(t, r.Sent), &how))
	}
	body = append(body, bytes.Repeat([]byte(" "), how.Spaces)...)
	req, err := http.NewRequestWithContext(t.Context(), how.Method, url+"/"+r.endpoint+"?"+how.Query, bytes.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", how.ContentType)
	if how.ContentEncoding != "" {
		req.Header.Set("Content-Encoding", how.ContentEncoding)
	}
	if how.Spaces > 0 {
		// An answer that comes before the body has been read is lost to a client that writes.
		req.Header.Set("Expect", "100-continue")
	}
	return req
}

// encodedPatch is a patch in an answer. In a string its quotes would be escaped.
var encodedPatch = regexp.MustCompile(`"patch":"([^"]*)"`)

// answerOf returns what counts of an answer. None of it is lost but for white space, of which
// JSON has none.
func answerOf(t *testing.T, resp *http.Response, text []byte) answered {
	t.Helper()
	answer := answered{Status: resp.StatusCode, Header: map[string]string{}}
	for _, name := range countedHeaders {
		if value := resp.Header.Get(name); value != "" {
			answer.Header[name] = value
		}
	}
	if answer.Header["Content-Type"] != "application/json" {
		answer.Body = indented(t, string(text))
		return answer
	}
	requireCompact(t, text)
	answer.Body = encodedPatch.ReplaceAllFunc(text, func(field []byte) []byte {
		patch, err := base64.StdEncoding.DecodeString(string(encodedPatch.FindSubmatch(field)[1]))
		require.NoError(t, err)
		requireCompact(t, patch)
		return append([]byte(`"patch":`), patch...)
	})
	return answer
}

func requireCompact(t *testing.T, text []byte) {
	t.Helper()
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, text))
	require.Equal(t, compact.String(), string(text))
}

// indented returns a value as JSON that reads well, with strings as they were encoded.
func indented(t *testing.T, value any) json.RawMessage {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	require.NoError(t, encoder.Encode(value))
	return bytes.TrimSpace(text.Bytes())
}

// raw returns an object as the API server encodes it.
func raw(t *testing.T, object any) runtime.RawExtension {
	t.Helper()
	text, err := json.Marshal(object)
	require.NoError(t, err)
	return runtime.RawExtension{Raw: text}
}
