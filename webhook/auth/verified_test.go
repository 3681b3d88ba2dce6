package auth

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was remembered is given back exactly as it was put, and never after its time: beside
// a map that forgets nothing.
func TestWhatIsRememberedIsWhatWasVerified(t *testing.T) {
	const seed = 1
	random := rand.New(rand.NewPCG(seed, seed))
	var v verified[int]
	type put struct {
		by    int
		until time.Time
	}
	all := map[digest]put{}
	at := now
	for range 20000 {
		at = at.Add(time.Duration(random.IntN(2)) * time.Second)
		shown, by := digest{byte(random.IntN(100)), byte(random.IntN(10))}, random.IntN(3)
		if random.IntN(2) == 0 {
			until := at.Add(time.Duration(random.IntN(600)) * time.Second)
			v.put(shown, by, grant{until: until})
			all[shown] = put{by, until}
		}
		require.LessOrEqual(t, len(v.entries), maxVerified)
		if g, ok := v.get(shown, by, at); ok {
			require.Equal(t, put{by, g.until}, all[shown])
			require.True(t, at.Before(g.until))
		}
	}
}
