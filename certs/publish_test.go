package certs

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestIsChanged(t *testing.T) {
	t.Parallel()
	secrets := schema.GroupResource{Resource: "secrets"}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"an update of an older version lost":    {err: apierrors.NewConflict(secrets, testSecret, errors.New("modified")), want: true},
		"a creation came second":                {err: apierrors.NewAlreadyExists(secrets, testSecret), want: true},
		"what was updated is gone":              {err: apierrors.NewNotFound(secrets, testSecret), want: true},
		"the test of a patch failed":            {err: apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", secrets, "", "", 0, false), want: true},
		"a wrapped conflict is one":             {err: fmt.Errorf("write: %w", apierrors.NewConflict(secrets, testSecret, nil)), want: true},
		"a lack of permission stays":            {err: forbidden("secrets")},
		"a server that is away may come back":   {err: errors.New("connection refused")},
		"a server that is busy is left to rest": {err: apierrors.NewTooManyRequests("busy", 1)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, isChanged(tt.err))
		})
	}
}

func TestWatchesKeepNoKeys(t *testing.T) {
	t.Parallel()
	kept, err := nameOnly(secretOf(t, freshState(t, start())))
	require.NoError(t, err)
	require.IsType(t, &metav1.PartialObjectMetadata{}, kept, "which has no data")
	again, err := nameOnly(kept)
	require.NoError(t, err)
	require.Equal(t, kept, again, "the cache may transform twice")
}
