package tracker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWhenATaintWasWritten(t *testing.T) {
	now := time.Date(2026, time.November, 20, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	for name, tt := range map[string]struct {
		taint Taint
		want  time.Time
	}{
		"it has the time of its writing":              {Taint{TimeAdded: at(-60), Seen: at(-30)}, at(-60)},
		"it was seen to change later":                 {Taint{TimeAdded: at(-60), Changed: at(-30)}, at(-30)},
		"H02 its time was set back":                   {Taint{TimeAdded: at(-86_400), Changed: at(-30)}, at(-30)},
		"its time is ahead":                           {Taint{TimeAdded: at(60), Changed: at(-30)}, at(-30)},
		"its time is ahead and it stood at the start": {Taint{TimeAdded: at(60), Seen: at(-30)}, at(-30)},
		"all that is known of it is ahead":            {Taint{TimeAdded: at(60), Changed: at(1)}, now},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.taint.Written(now))
		})
	}
}
