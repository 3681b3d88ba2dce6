package auth

import (
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// BenchmarkIdentify is what a caller costs each review: once it is known, and once it is
// not.
func BenchmarkIdentify(b *testing.B) {
	s := newScene(b, true)
	known := s.known
	b.Run("token", func(b *testing.B) {
		r := showing(b, nil, "Bearer "+s.all)
		b.ReportAllocs()
		for b.Loop() {
			visit, ok := known.Identify(r, validate)
			require.True(b, ok && visit.MaySend(b.Context(), ""))
		}
	})
	b.Run("certificate", func(b *testing.B) {
		r := showing(b, s.right)
		b.ReportAllocs()
		for b.Loop() {
			visit, ok := known.Identify(r, validate)
			require.True(b, ok && visit.MaySend(b.Context(), ""))
		}
	})
	b.Run("nothing", func(b *testing.B) {
		r := showing(b, nil)
		b.ReportAllocs()
		for b.Loop() {
			_, ok := known.Identify(r, validate)
			require.False(b, ok)
		}
	})
}

// BenchmarkVerify is what a token costs that was not seen before.
func BenchmarkVerify(b *testing.B) {
	for _, algorithm := range []jose.SignatureAlgorithm{jose.RS256, jose.ES256} {
		by := newSigner(b, "one", algorithm)
		known := acceptingTokens(b, true, publishing(by))
		token := forValidating().signedBy(b, by)
		b.Run(string(algorithm), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				known.tokens.verified = verified[tokenContext]{}
				_, err := known.tokens.identify(b.Context(), token, endpoints()[validate])
				require.NoError(b, err)
			}
		})
	}
}
