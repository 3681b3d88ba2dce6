package webhook_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/webhook"
	"github.com/tollgate-dev/tollgate/webhook/review"
)

// mutantsVariable asks for all mutants of the corpus, where a part of them is tried ordinarily.
const mutantsVariable = "TOLLGATE_MUTANTS"

// oneIn is the part of the mutants that is tried ordinarily.
const oneIn = 20

// strange are values in the place of those of a review.
var strange = []string{
	`null`, `true`, `0`, `-1`, `1.5`, `9223372036854775808`, `1e400`, `""`, `"x"`, `"\u0000"`, `[]`, `{}`, `[null]`, `[[]]`, `{"":null}`, `{"x":{}}`,
}

// twice stands for a name that is there already.
const twice = "the same name again"

// mutants calls f with texts that differ from a review in one value: it is missing, or there twice,
// or a strange one. Wanted is asked for each whether it is made.
func mutants(t *testing.T, text []byte, wanted func() bool, f func(mutant []byte)) {
	t.Helper()
	var root any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&root))
	// try makes the text of the review as it is now; named is what the name twice stands for.
	try := func(named string) {
		if !wanted() {
			return
		}
		encoded, err := json.Marshal(root)
		require.NoError(t, err)
		quoted, err := json.Marshal(named)
		require.NoError(t, err)
		f(bytes.Replace(encoded, []byte(`"`+twice+`"`), quoted, 1))
	}
	var visit func(value any)
	// vary tries values in the place of one, and leaves it as it was.
	vary := func(was any, set func(value any)) {
		for _, value := range strange {
			set(json.RawMessage(value))
			try("")
		}
		set(was)
	}
	visit = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				member := value[name]
				vary(member, func(v any) { value[name] = v })
				delete(value, name)
				try("")
				value[name], value[twice] = member, member
				try(name)
				delete(value, twice)
				visit(member)
			}
		case []any:
			for i, item := range value {
				vary(item, func(v any) { value[i] = v })
				visit(item)
			}
		}
	}
	visit(root)
}

// undecided are the reasons for which there may be no decision on a review.
var undecided = map[string]func(error) bool{
	// No API server reviews an object of a namespace that does not exist. One that the cache does not
	// know, and the API server neither, may be about to be created.
	"a namespace does not exist": func(err error) bool {
		status := apierrors.APIStatus(nil)
		return errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
	},
	// It is what the recordings with that setting are about.
	"the policies have not been read": func(err error) bool { return err.Error() == "the policies have not been read yet" },
}

func TestMutantsOfTheCorpusAreDecidedOrHaveAReason(t *testing.T) {
	cluster := loadCluster(t)
	all := os.Getenv(mutantsVariable) != ""
	made, tried, statuses, reasons := 0, 0, map[int]int{}, map[string]int{}
	for _, r := range readCorpus(t) {
		if status, _ := r.response(t); len(r.Review) == 0 || r.Sent != nil || status == http.StatusInternalServerError || path.Base(path.Dir(r.name)) == malformed {
			continue
		}
		machine := clocktesting.NewFakePassiveClock(now)
		config := cluster.configOn(t, r.Settings, machine)
		endpoint := webhook.Validate(config)
		if r.endpoint == webhook.EndpointMutate {
			endpoint = webhook.Mutate(config)
		}
		mutants(t, r.Review, func() bool {
			made++
			return all || made%oneIn == 0
		}, func(mutant []byte) {
			tried++
			// What is read of the API server is bounded by time. None of it is what is looked for.
			machine.SetTime(machine.Now().Add(time.Hour))
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(mutant))
			request.Header.Set("Content-Type", "application/json")
			answer := httptest.NewRecorder()
			endpoint.ServeHTTP(answer, request)
			statuses[answer.Code]++
			if answer.Code != http.StatusInternalServerError {
				require.Contains(t, []int{http.StatusOK, http.StatusBadRequest}, answer.Code, "%s: %s", r.name, mutant)
				return
			}
			machine.SetTime(machine.Now().Add(time.Hour))
			reason, known := reasonOf(t, endpoint, mutant)
			if reasons[reason]++; !known && reasons[reason] == 1 {
				t.Errorf("%s: no decision, for a reason that is not known: %s\n%s", r.name, reason, mutant)
			}
		})
	}
	t.Logf("%d of %d mutants: %v; no decision: %v", tried, made, statuses, reasons)
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		require.Greater(t, statuses[status], tried/20, "the test tries nothing")
	}
}

// quotedText is what a message quotes of the review.
var quotedText = regexp.MustCompile(`"[^"]*"`)

// reasonOf returns why there is no decision on a review, and whether that is known.
func reasonOf(t *testing.T, endpoint *webhook.Endpoint, body []byte) (reason string, known bool) {
	t.Helper()
	req, err := review.NewReader().Read(body)
	require.NoError(t, err)
	_, err = endpoint.Review(t.Context(), req)
	require.Error(t, err, "%s", body)
	for reason, is := range undecided {
		if is(err) {
			return reason, true
		}
	}
	return quotedText.ReplaceAllString(err.Error(), `"…"`), false
}
