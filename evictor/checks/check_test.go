package checks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scripted is a check with a fixed answer that records what is asked and undone.
type scripted struct {
	name   string
	answer Answer
	log    *[]string
}

func (s scripted) ask(Now, *Eviction) Answer {
	*s.log = append(*s.log, "ask "+s.name)
	answer := s.answer
	if answer.Hold == nil && answer.Wait == 0 {
		answer.Undo = func(_ Now, end End) {
			*s.log = append(*s.log, map[End]string{Stayed: "stayed ", Left: "left ", PutOff: "put off "}[end]+s.name)
		}
	}
	return answer
}

func TestList(t *testing.T) {
	t.Parallel()
	held := Answer{Hold: NewHold(Paused, nil)}
	waits := Answer{Wait: time.Second}
	for _, test := range []struct {
		name    string
		answers []Answer
		want    Answer
		log     []string
	}{
		{"an empty list lets the pod go", nil, Answer{}, []string{}},
		{"all checks are asked in order", []Answer{{}, {}}, Answer{}, []string{"ask 0", "ask 1"}},
		{
			"a check that holds ends the list, and what was given is taken back in reverse",
			[]Answer{{}, {}, held, {}},
			held,
			[]string{"ask 0", "ask 1", "ask 2", "stayed 1", "stayed 0"},
		},
		{"a pod that waits keeps its place", []Answer{{}, waits, {}}, waits, []string{"ask 0", "ask 1", "put off 0"}},
		{"a first check that holds takes nothing back", []Answer{held, {}}, held, []string{"ask 0"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			log := []string{}
			var list List
			for i, answer := range test.answers {
				list = append(list, scripted{name: string(rune('0' + i)), answer: answer, log: &log}.ask)
			}
			_, answer := list.Ask(Now{}, &Eviction{})
			require.Equal(t, test.want, answer)
			require.Equal(t, test.log, log)
		})
	}
	t.Run("a pass is ended in reverse", func(t *testing.T) {
		t.Parallel()
		log := []string{}
		pass, _ := List{scripted{name: "0", log: &log}.ask, scripted{name: "1", log: &log}.ask}.Ask(Now{}, &Eviction{})
		pass.End(Now{}, Left)
		require.Equal(t, []string{"ask 0", "ask 1", "left 1", "left 0"}, log)
	})
}

// broken is a check that panics.
func broken(Now, *Eviction) Answer { panic("a defect") }

func TestAListGivesBackWhatItGaveWhenACheckPanics(t *testing.T) {
	t.Parallel()
	log := []string{}
	require.Panics(t, func() { List{scripted{name: "0", log: &log}.ask, broken}.Ask(Now{}, &Eviction{}) })
	require.Equal(t, []string{"ask 0", "put off 0"}, log)
}

func TestReasonsHaveTexts(t *testing.T) {
	t.Parallel()
	for _, reason := range Reasons() {
		require.NotEmpty(t, reason.Condition())
		require.NotEmpty(t, reason.Explain("p"))
		require.NotContains(t, reason.Explain("p"), "{")
	}
	require.Len(t, Reasons(), len(texts))
	require.Equal(t, "EvictionPolicy p is paused. To let them go: kubectl tollgate resume policy p", Paused.Explain("p"))
}
