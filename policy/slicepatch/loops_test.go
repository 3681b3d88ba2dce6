package slicepatch

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/cel"
)

func TestLoops(t *testing.T) {
	t.Parallel()
	none, maps, lists := loops{}, loops{maps: true}, loops{maps: true, lists: true}
	for text, want := range map[string]loops{
		`device.driver == "d"`:                                                       none,
		`[1, 2].map(x, x + 1)[0] == 2`:                                               none,
		`device.attributes["d"].list.exists(i, i == 1)`:                              none,
		`device.attributes["d"]["list"].map(i, i + 1)[0] == 1`:                       none,
		`device.attributes[device.driver].list.filter(i, i == 1).size() == 1`:        none,
		`device.attributes["d"].list.sortBy(i, i)[0] == 1`:                           none,
		`device.attributes["d"].list.transformList(i, v, v)[0] == 1`:                 none,
		`device.attributes["d"].?list.orValue([]).exists(i, i == 1)`:                 none,
		`device.attributes["d"][?"list"].orValue([]).exists(i, i == 1)`:              none,
		`device.attributes["d"].?list.optMap(l, l.map(i, i)[0] == 1).orValue(false)`: none,
		`cel.bind(d, device.attributes["d"], d.list.map(i, i)[0] == 1)`:              none,
		`cel.bind(l, device.attributes["d"].list, l.map(i, i)[0] == 1)`:              none,
		`cel.bind(l, [1], cel.bind(l, l, l.map(i, i)[0] == 1))`:                      none,
		`[device].exists(d, d.attributes["d"].list.exists(i, i == 1))`:               none,
		`cel.bind(d, device.attributes["d"], d.a == 1)`:                              none,

		`device.attributes["d"].exists(k, k == "a")`:                                                          maps,
		`device.attributes["d"].all(k, v, v != "a")`:                                                          maps,
		`device.attributes["d"].exists_one(k, k == "a")`:                                                      maps,
		`device.capacity["d"].all(k, k != "a")`:                                                               maps,
		`device.attributes.exists(d, d == "d")`:                                                               maps,
		`[1].exists(i, device.attributes["d"].exists(k, k == "a"))`:                                           maps,
		`size(device.attributes["d"].transformMap(k, v, k)) == 1`:                                             maps,
		`cel.bind(d, device.attributes["d"], d.exists(k, k == "a"))`:                                          maps,
		`dyn(device.attributes["d"]).exists(k, k == "a")`:                                                     maps,
		`cel.bind(l, device.attributes["d"].list, [device.attributes["d"]].exists(l, l.exists(k, k == "a")))`: maps,
		`device.attributes["d"].?list.orValue(device.attributes["d"]).exists(k, k == "a")`:                    maps,
		`(device.driver == "d" ? device.attributes["d"].list : device.attributes["d"]).exists(k, k == "a")`:   maps,
		`{"a": dyn(device.attributes["d"])}["a"].exists(k, k == "a")`:                                         maps,

		`device.attributes["d"].map(k, k)[0] == "a"`:                 lists,
		`device.attributes["d"].map(k, k != "b", k)[0] == "a"`:       lists,
		`device.attributes["d"].filter(k, k != "b")[0] == "a"`:       lists,
		`device.attributes["d"].transformList(k, v, k)[0] == "a"`:    lists,
		`device.capacity["d"].map(k, k)[0] == "a"`:                   lists,
		`device.attributes.map(d, d)[0] == "d"`:                      lists,
		`dyn(device.attributes["d"]).map(k, k)[0] == "a"`:            lists,
		`cel.bind(d, device.attributes["d"], d.map(k, k)[0] == "a")`: lists,
	} {
		s := selecting(text)
		require.NoError(t, s.err, text)
		require.Equal(t, want, s.loops, text)
	}
}

// Without that a patch is given up for other devices in each process that asks.
func TestALoopOverAMapIsChargedTheSameEachTime(t *testing.T) {
	t.Parallel()
	e := selecting(`device.attributes["d"].exists(k, k == "n7")`)
	d := resourcev1.Device{Name: "d", Attributes: attributes{}}
	for i := range 16 {
		d.Attributes[name("n"+strconv.Itoa(i))] = resourcev1.DeviceAttribute{IntValue: new(int64(i))}
	}
	for range 100 {
		// An expression of its own, so that nothing is known.
		fresh := &expression{program: e.program, reads: e.reads, loops: e.loops, answers: map[string]*answer{}}
		got, err := (&Filter{selectors: []selector{{expression: fresh}}}).satisfies(nil, "d", &d)
		require.NoError(t, err)
		require.True(t, got)
		require.Len(t, fresh.answers, 1)
		for _, given := range fresh.answers {
			require.Equal(t, e.program.MaxCost, given.cost)
		}
	}
}

// A class may cost more than a patch.
func TestALoopOverAMapIsChargedNoMoreThanADeviceMayCost(t *testing.T) {
	t.Parallel()
	s := selecting(`device.attributes["d"].exists(k, device.attributes["d"].exists(l, device.attributes["d"].exists(m, k + l + m == "nnn")))`)
	require.Greater(t, s.program.MaxCost, uint64(maxCost))
	d := &cel.Device{Driver: "d", Attributes: attributes{"n": {IntValue: new(int64(1))}}}
	given := s.evaluate(d)
	require.NoError(t, given.err)
	require.True(t, given.matches)
	require.Equal(t, uint64(maxCost), given.cost)
}
