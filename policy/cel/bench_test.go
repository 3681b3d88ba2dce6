package cel

import (
	"fmt"
	"runtime"
	"testing"
)

const typical = "pod.metadata.?labels[?'maintenance'].orValue('') == 'true' && toleration.key.startsWith('gpu')"

func BenchmarkCompile(b *testing.B) {
	env := environments()[OfToleration].StoredExpressionsEnv()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compile(env, typical, Bool); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompileOfTheSameText(b *testing.B) {
	kept := mustCompile(b, OfToleration, typical)
	b.ReportAllocs()
	for b.Loop() {
		mustCompile(b, OfToleration, typical)
	}
	runtime.KeepAlive(kept)
}

// Two expressions in each of 1,000 policies.
func BenchmarkCompileOfAThousandPolicies(b *testing.B) {
	mustCompile(b, OfToleration, typical)
	for b.Loop() {
		for i := range 1000 {
			mustCompile(b, OfToleration, fmt.Sprintf("%s && request.namespace == 'team-%d'", typical, i))
			mustCompile(b, OfRequest, fmt.Sprintf("object.metadata.?labels[?'team'].orValue('') == 'team-%d'", i))
		}
	}
}

func BenchmarkCompileHostile(b *testing.B) {
	for name, text := range hostile() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = Compile(OfRequest, text, Bool)
			}
		})
	}
}

func BenchmarkEvaluate(b *testing.B) {
	for name, text := range map[string]string{
		"of the toleration": "toleration.key.startsWith('gpu') && toleration.effect == 'NoSchedule'",
		"of the pod":        typical,
		"of the requester":  "request.userInfo.username == 'anna' && 'team-a' in request.userInfo.groups",
		"loop":              "object.spec.containers.all(c, c.image.startsWith('registry.example/'))",
		"check":             "authorizer.group('tollgate.dev').resource('taints').name('gpu').check('tolerate').allowed()",
	} {
		program := mustCompile(b, OfToleration, text)
		b.Run(name, func(b *testing.B) {
			r, j := review("anna"), judged(toleration())
			b.ReportAllocs()
			for b.Loop() {
				r.spent, r.answers = 0, answers{}
				if _, err := program.Bool(b.Context(), r, j); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("the first of a review, with its objects", func(b *testing.B) {
		program, j := mustCompile(b, OfToleration, typical), judged(toleration())
		b.ReportAllocs()
		for b.Loop() {
			if _, err := program.Bool(b.Context(), review("anna"), j); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// D01: what one expression that costs too much takes until it is stopped, of a review
// whose objects are decoded.
func BenchmarkEvaluateWhatCostsTooMuch(b *testing.B) {
	for name, tt := range costly(newLarge(b)) {
		program := mustCompile(b, OfRequest, tt.text)
		b.Run(name, func(b *testing.B) {
			r := tt.object.review()
			for b.Loop() {
				r.spent, r.answers = 0, answers{}
				_, _ = program.Bool(b.Context(), r, nil)
			}
		})
	}
}
