package evictor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/tracker"
)

func TestConfirmerFresh(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		age  time.Duration
		want bool
	}{
		{"INV-3 what was read just now is fresh", 0, true},
		{"INV-3 what was read as long ago as is allowed is fresh", DefaultMaxNodeAge, true},
		{"H05 what was read longer ago is not, even before it was swept", DefaultMaxNodeAge + 1, false},
		{"H05 what was read in the future, by a clock that was set back, is not", -time.Second, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := &confirmer{
				tracker: tracker.New(), clock: clocktesting.NewFakePassiveClock(noon),
				maxAge: DefaultMaxNodeAge, read: map[string]time.Time{},
			}
			require.False(t, c.fresh("n"))
			c.saw(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "1"}}, noon.Add(-test.age))
			require.Equal(t, test.want, c.fresh("n"))
			require.False(t, c.fresh("m"))
		})
	}
}
