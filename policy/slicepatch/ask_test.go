package slicepatch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"
)

// What an expression says of the little that it reads is what Kubernetes says of the whole
// device.
func TestAskAgreesWithKubernetes(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	devices := make([]resourcev1.Device, 200)
	for i := range devices {
		devices[i] = randomDevice(random, "d", strconv.Itoa(i))
	}
	for text := range looksAt {
		program := compile()(text, cel.Options{CostLimit: new(uint64(maxCost))})
		require.Nil(t, program.Error, text)
		filter := &Filter{selectors: []selector{selecting(text)}}
		for i := range devices {
			want, _, wantErr := program.DeviceMatches(t.Context(), cel.Device{
				Driver: "d", AllowMultipleAllocations: devices[i].AllowMultipleAllocations, Attributes: devices[i].Attributes, Capacity: devices[i].Capacity,
			})
			got, err := filter.satisfies(nil, "d", &devices[i])
			require.Equal(t, want, got, "%s of %v", text, devices[i])
			if wantErr == nil {
				require.NoError(t, err, text)
			} else {
				require.EqualError(t, err, "selectors[0]: "+readable(wantErr.Error()).Error(), text)
			}
		}
	}
}

func randomDevice(random *rand.Rand, driver, called string) resourcev1.Device {
	d := resourcev1.Device{Name: called, Attributes: attributes{}, Capacity: capacities{}}
	if random.IntN(2) == 0 {
		d.AllowMultipleAllocations = new(random.IntN(2) == 0)
	}
	for _, id := range []string{"a", "b", "c", "list", "v"} {
		spelt := id
		switch random.IntN(4) {
		case 0:
			continue
		case 1:
			spelt = driver + "/" + id
		case 2:
			spelt = "x/" + id
		}
		value := resourcev1.DeviceAttribute{IntValue: new(random.Int64N(3))}
		switch {
		case id == "list":
			value = resourcev1.DeviceAttribute{IntValues: []int64{random.Int64N(3), random.Int64N(3)}}
		case id == "v":
			value = resourcev1.DeviceAttribute{VersionValue: new(fmt.Sprintf("1.%d.0", random.IntN(3)))}
		case random.IntN(4) == 0:
			value = resourcev1.DeviceAttribute{StringValue: new(strconv.Itoa(random.IntN(3)))}
		}
		d.Attributes[name(spelt)] = value
		d.Capacity[name(spelt)] = resourcev1.DeviceCapacity{Value: *quantity.NewQuantity(random.Int64N(3), quantity.DecimalSI)}
	}
	return d
}

// looksAt are expressions, and what they read: attributes and capacity.
var looksAt = map[string][2]part{
	`true`:                            {},
	`device.driver == "d"`:            {},
	`device.allowMultipleAllocations`: {},
	`device.attributes["d"].a == 1`:   {{paths: []path{{"d", "a"}}}},
	`.device.attributes["d"].a == 1`:  {{paths: []path{{"d", "a"}}}},
	`device.attributes["d"]["a"] == 1 || device.attributes["x"].b == 2`:        {{paths: []path{{"d", "a"}, {"x", "b"}}}},
	`device.attributes["d"].a == device.attributes["d"].a`:                     {{paths: []path{{"d", "a"}}}},
	`has(device.attributes["d"].a)`:                                            {{paths: []path{{"d", "a"}}}},
	`"a" in device.attributes["d"]`:                                            {{paths: []path{{"d", "a"}}}},
	`device.attributes["d"].?a.orValue(1) == 1`:                                {{paths: []path{{"d", "a"}}}},
	`device.attributes["d"][?"a"].hasValue()`:                                  {{paths: []path{{"d", "a"}}}},
	`device.attributes["d"].list.exists(i, i == 1)`:                            {{paths: []path{{"d", "list"}}}},
	`device.attributes["d"].v.isGreaterThan(semver("1.0.0"))`:                  {{paths: []path{{"d", "v"}}}},
	`cel.bind(a, device.attributes["d"].a, a == 1 || a == 2)`:                  {{paths: []path{{"d", "a"}}}},
	`cel.bind(d, device.attributes["d"], d.a == 1 && d.b == 1)`:                {{paths: []path{{"d", ""}}}},
	`size(device.attributes["d"]) > 2`:                                         {{paths: []path{{"d", ""}}}},
	`size(device.attributes["d"]) > 2 && device.attributes["d"].a == 1`:        {{paths: []path{{"d", ""}}}},
	`device.attributes["d"].all(k, k != "b")`:                                  {{paths: []path{{"d", ""}}}},
	`device.attributes["d"][device.driver + ""] == 1`:                          {{paths: []path{{"d", ""}}}},
	`device.attributes[device.driver].a == 1`:                                  {{all: true}},
	`size(device.attributes) > 1`:                                              {{all: true}},
	`"x" in device.attributes`:                                                 {{all: true}},
	`device.attributes.all(domain, domain != "x")`:                             {{all: true}},
	`device.capacity["d"].c.compareTo(quantity("1")) == 0`:                     {{}, {paths: []path{{"d", "c"}}}},
	`device.capacity["d"].a == quantity("1") && device.attributes["d"].a == 1`: {{paths: []path{{"d", "a"}}}, {paths: []path{{"d", "a"}}}},
	`[device].exists(d, d.driver == "d")`:                                      {{all: true}, {all: true}},
	`[1, 2].exists(device, device == 1)`:                                       {},
	`device.attributes["d"][""] == 1`:                                          {{paths: []path{{"d", ""}}}},
	`device.attributes["d"].a`:                                                 {{paths: []path{{"d", "a"}}}},
}

func TestReads(t *testing.T) {
	t.Parallel()
	for text, want := range looksAt {
		got := selecting(text).reads
		require.Equal(t, want[0].all, got.attributes.all, text)
		require.Equal(t, want[1].all, got.capacity.all, text)
		require.ElementsMatch(t, want[0].paths, got.attributes.paths, text)
		require.ElementsMatch(t, want[1].paths, got.capacity.paths, text)
	}
}

// What is read of devices is gathered once for all expressions that read the same, so
// nothing that a domain or a name may be can look like other reads.
func TestReadsAreToldApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 40)
	pairs := map[string][2]string{
		"a length that looks like all": {
			`device.attributes["|)` + long + `"]["\x01"] == 1`,
			`size(device.attributes) > 0 && device.capacity["` + long + `\x01"]["|"] == quantity("1")`,
		},
		"a quote in a name":   {`device.attributes["a"]["b\"\"c"] == 1`, `device.attributes["a"]["b"] == 1 || device.attributes["c"].d == 1`},
		"a bar in a domain":   {`device.attributes["a|"].b == 1`, `device.attributes["a"].b == 1`},
		"a star for a domain": {`device.attributes["*"].b == 1`, `device.attributes[device.driver].b == 1`},
	}
	// It has what is read by the first of the pairs, so that the answers differ.
	d := resourcev1.Device{Name: "d", Attributes: attributes{name("|)" + long + "/\x01"): {IntValue: new(int64(1))}}}
	for what, pair := range pairs {
		one, other := selecting(pair[0]), selecting(pair[1])
		require.NoError(t, one.err, what)
		require.NoError(t, other.err, what)
		require.NotEqual(t, one.reads.id, other.reads.id, what)
		seen := See(&resourcev1.ResourceSliceSpec{Driver: "d", Devices: []resourcev1.Device{d}})
		for _, s := range []selector{other, one} {
			want, wantErr := (&Filter{selectors: []selector{s}}).satisfies(nil, "d", &d)
			(&Filter{selectors: []selector{s}}).Ask(nil, seen, nil, func(_ int, got bool, err error) {
				require.Equal(t, want, got, what)
				require.Equal(t, wantErr, err, what)
			})
		}
	}
}

func TestExpressionsAreShared(t *testing.T) {
	t.Parallel()
	one := selecting(`device.attributes["shared.example.com"].a == 1 && (device.driver == "d")`)
	require.Same(t, one.expression, selecting(`device.attributes["shared.example.com"].a == 1 && (device.driver == "d")`).expression, "the same text")
	require.NotSame(t, one.expression, selecting(`device.attributes['shared.example.com'].a==1 && device.driver=='d'`).expression, "spelt otherwise")
	require.NotSame(t, one.expression, selecting(`device.attributes["shared.example.com"].a == 2 && device.driver == "d"`).expression)
	runtime.KeepAlive(one)
}

// CEL writes both texts of a pair as the same, and one of them costs more.
func TestAnExpressionCostsWhatItCostsAlone(t *testing.T) {
	t.Parallel()
	const double, nested = `!!(device.driver == "alone.example.com")`, `!(!(device.driver == "alone.example.com"))`
	const minus, inner = `--size(device.driver) == 17 && true`, `-(-size(device.driver)) == 17 && true`
	device := &cel.Device{Driver: "alone.example.com"}
	for _, texts := range [][]string{{double, nested}, {nested, double}, {minus, inner}, {inner, minus}} {
		var together []selector
		for _, text := range texts {
			together = append(together, selecting(text))
		}
		for i, text := range texts {
			require.NoError(t, together[i].err, text)
			alone := compile()(text, cel.Options{CostLimit: new(uint64(maxCost))})
			yes, details, err := alone.DeviceMatches(t.Context(), *device)
			require.NoError(t, err, text)
			given := together[i].evaluate(device)
			require.Equal(t, yes, given.matches, text)
			require.Equal(t, *details.ActualCost(), given.cost, text)
			require.Equal(t, alone.MaxCost, together[i].program.MaxCost, text)
		}
	}
}

func TestOtherSpellingsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	const text = `device.driver == "spelt.example.com"`
	one := selecting(text)
	for i := range 100 {
		selecting(text + strings.Repeat(" ", i+1))
	}
	require.Eventually(t, func() bool {
		runtime.GC()
		left := 0
		expressions.Range(func(key, _ any) bool {
			if strings.HasPrefix(key.(string), text) {
				left++
			}
			return true
		})
		return left == 1
	}, time.Minute, 10*time.Millisecond)
	require.Same(t, one.expression, selecting(text).expression)
}

func TestExpressionsThatNobodyHasAreForgotten(t *testing.T) {
	t.Parallel()
	const text = `device.driver == "forgotten.example.com"`
	selecting(text)
	require.Eventually(t, func() bool {
		runtime.GC()
		_, found := expressions.Load(text)
		return !found
	}, time.Minute, 10*time.Millisecond)
}

func TestAnExpressionKeepsFewAnswers(t *testing.T) {
	t.Parallel()
	s := selecting(`device.attributes["few.example.com"].n == 7`)
	filter := &Filter{selectors: []selector{s}}
	for i := range 10 * maxAnswers {
		d := resourcev1.Device{Attributes: attributes{"few.example.com/n": {IntValue: new(int64(i))}}}
		got, err := filter.satisfies(nil, "d", &d)
		require.NoError(t, err)
		require.Equal(t, i == 7, got)
		require.LessOrEqual(t, len(s.answers), maxAnswers)
	}
}

// distinct returns a slice of devices that differ in n.
func distinct(devices int) *resourcev1.ResourceSliceSpec {
	spec := &resourcev1.ResourceSliceSpec{Driver: "d"}
	for i := range devices {
		spec.Devices = append(spec.Devices, resourcev1.Device{
			Name: fmt.Sprintf("dev-%03d", i), Attributes: attributes{"n": {IntValue: new(int64(i))}, "model": {StringValue: new("A100")}},
		})
	}
	return spec
}

// exploding loops for each device that there is, so that no two are asked alike. It
// costs some thousands.
const exploding = `device.attributes["d"].n >= 0 && [1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, a + b + c > 0)))`

// outcomes returns what is told of each device by name.
func outcomes(f *Filter, spec *resourcev1.ResourceSliceSpec) map[string]string {
	told := map[string]string{}
	f.Ask(nil, See(spec), nil, func(at int, yes bool, err error) {
		told[spec.Devices[at].Name] = fmt.Sprint(yes, err)
	})
	return told
}

// A patch that explodes costs a bounded amount for each slice, counted in units of CEL,
// and says what to do about it. Which devices it is given up for depends on the slice
// alone.
func TestWhatExplodesIsGivenUpForTheRestOfTheSlice(t *testing.T) {
	t.Parallel()
	fresh := func() *Filter {
		// An expression of its own, so that nothing is known.
		e := selecting(exploding)
		return &Filter{selectors: []selector{{expression: &expression{program: e.program, reads: e.reads, answers: map[string]*answer{}}}}}
	}
	spec := distinct(128)
	f := fresh()
	want := outcomes(f, spec)
	done := 0
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if want[name] == fmt.Sprint(true, nil) {
			require.Equal(t, fmt.Sprintf("dev-%03d", done), name, "they are the first by name")
			done++
			continue
		}
		require.Contains(t, want[name], "given up: the devices of its slice that come before it by name cost the 20000 that all expressions of a patch may cost for a slice; name the driver and the pools in the filter")
	}
	require.Positive(t, done)
	require.Less(t, done, 64)

	var spent uint64
	for _, given := range f.selectors[0].answers {
		spent += given.cost
	}
	require.Greater(t, spent, uint64(maxSliceCost)/2)
	require.Less(t, spent, uint64(maxSliceCost+maxCost), "what was evaluated cost more than the budget and the last answer")

	require.Equal(t, want, outcomes(f, spec), "what is known changes nothing")
	shuffled := spec.DeepCopy()
	rand.Shuffle(len(shuffled.Devices), func(i, j int) {
		shuffled.Devices[i], shuffled.Devices[j] = shuffled.Devices[j], shuffled.Devices[i]
	})
	require.Equal(t, want, outcomes(fresh(), shuffled), "the order in the slice changes nothing")
	f = fresh()
	for n := range 20 {
		outcomes(f, distinct(1+7*n))
	}
	require.Equal(t, want, outcomes(f, spec), "other slices change nothing")

	same := distinct(128)
	for i := range same.Devices {
		same.Devices[i].Attributes["n"] = resourcev1.DeviceAttribute{IntValue: new(int64(1))}
	}
	for name, outcome := range outcomes(fresh(), same) {
		require.Equal(t, fmt.Sprint(true, nil), outcome, "%s: devices of which the same is read cost once", name)
	}
}

// What a patch costs for many slices is what it costs for one, so many times, and for one
// whose devices look like those of another it costs nothing.
func TestWhatAFleetCosts(t *testing.T) {
	t.Parallel()
	s := selecting(`device.attributes["d"].model == "A100" && device.driver != "a fleet"`)
	f := &Filter{selectors: []selector{s}}
	for range 100 {
		for name, outcome := range outcomes(f, distinct(128)) {
			require.Equal(t, fmt.Sprint(true, nil), outcome, name)
		}
	}
	require.Len(t, s.answers, 1, "it was asked about more than the one model that there is")
}

func TestAskNamesOne(t *testing.T) {
	t.Parallel()
	spec := distinct(3)
	f := compiled(t, "p", by(`device.attributes['d'].n > 0`)).Filter
	told := map[int]bool{}
	f.Ask(nil, See(spec), new("dev-001"), func(at int, yes bool, err error) {
		require.NoError(t, err)
		told[at] = yes
	})
	require.Equal(t, map[int]bool{1: true}, told)
}

func BenchmarkAsk(b *testing.B) {
	for name, text := range map[string]string{
		"same":     `device.attributes["d"].model == "A100"`,
		"distinct": `device.attributes["d"].n == 3`,
		"all":      `device.attributes[device.driver].model == "A100"`,
	} {
		f := &Filter{selectors: []selector{selecting(text)}}
		spec := distinct(64)
		b.Run(name+"/known", func(b *testing.B) {
			devices := See(spec)
			for b.Loop() {
				f.Ask(nil, devices, nil, func(int, bool, error) {})
			}
		})
		b.Run(name+"/seen-anew", func(b *testing.B) {
			for b.Loop() {
				f.Ask(nil, See(spec), nil, func(int, bool, error) {})
			}
		})
		b.Run(name+"/not-known", func(b *testing.B) {
			for b.Loop() {
				clear(f.selectors[0].answers)
				f.Ask(nil, See(spec), nil, func(int, bool, error) {})
			}
		})
	}
}
