package attack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// memoryLimit is what Tollgate may have in memory: half of what deploy/base gives it.
	memoryLimit = 256 << 20
	// calm is how much of a CPU Tollgate uses at most while it does nothing.
	calm = 0.2
	// calmed is far above how long it takes until that is so.
	calmed = time.Minute
)

// pid is that of Tollgate.
func pid(t *testing.T) int {
	t.Helper()
	p, err := tollgate.Process()
	require.NoError(t, err)
	require.True(t, p.Alive(), "Tollgate has ended: %s", p.Exit())
	return p.Identity().PID
}

// process is what the system says of Tollgate.
func process(t *testing.T) procfs.Proc {
	t.Helper()
	p, err := procfs.NewProc(pid(t))
	require.NoError(t, err)
	return p
}

// memory returns what Tollgate has in memory, and the most that it had.
func memory(t *testing.T) (now, most int64) {
	t.Helper()
	status, err := process(t).NewStatus()
	require.NoError(t, err)
	return int64(status.VmRSS), int64(status.VmHWM)
}

// forgetMost makes the most that Tollgate had in memory what it has now, see proc_pid_clear_refs(5).
func forgetMost(t *testing.T) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join("/proc", strconv.Itoa(pid(t)), "clear_refs"), []byte("5"), 0o600))
}

// series returns a metric of Tollgate, nil if it has none of that name.
func series(ctx context.Context, name string) (*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, tollgate.MetricsURL, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return nil, err
	}
	return families[name], nil
}

// goroutines returns how many there are in Tollgate.
func goroutines(ctx context.Context) (int, error) {
	family, err := series(ctx, "go_goroutines")
	if err != nil {
		return 0, err
	}
	if len(family.GetMetric()) != 1 {
		return 0, errors.New("go_goroutines is not there")
	}
	return int(family.GetMetric()[0].GetGauge().GetValue()), nil
}

// rest is the number of goroutines that Tollgate has without requests.
type rest struct{ goroutines int }

// atRest waits until Tollgate does nothing, and returns what it is like then.
func atRest(t *testing.T) rest {
	t.Helper()
	var r rest
	waitCalm(t, func(ctx context.Context) (err error) {
		r.goroutines, err = goroutines(ctx)
		return err
	})
	return r
}

// requireAgain waits until Tollgate is as it was at rest, and returns how long that took.
func (r rest) requireAgain(t *testing.T) time.Duration {
	t.Helper()
	// Connections of the API server, of the tests and of watches come and go.
	const others = 20
	began := time.Now()
	waitCalm(t, func(ctx context.Context) error {
		now, err := goroutines(ctx)
		if err == nil && now > r.goroutines+others {
			err = fmt.Errorf("%d goroutines, and %d before", now, r.goroutines)
		}
		return err
	})
	return time.Since(began)
}

// waitCalm returns when Tollgate uses next to nothing of a CPU, and check says nothing.
func waitCalm(t *testing.T, check func(ctx context.Context) error) {
	t.Helper()
	const period = 500 * time.Millisecond
	p, last := process(t), errors.New("never looked")
	stat, err := p.Stat()
	require.NoError(t, err)
	before, began := stat.CPUTime(), time.Now()
	err = wait.PollUntilContextTimeout(t.Context(), period, calmed, false, func(ctx context.Context) (bool, error) {
		stat, err := p.Stat()
		if err != nil {
			return false, err
		}
		used := (stat.CPUTime() - before) / time.Since(began).Seconds()
		before, began = stat.CPUTime(), time.Now()
		checked := check(ctx)
		if checked == nil && used > calm {
			checked = fmt.Errorf("it uses %.2f of a CPU", used)
		}
		if ctx.Err() == nil { // Otherwise what was wrong before is what is told.
			last = checked
		}
		return checked == nil, nil
	})
	require.NoError(t, err, "%v", last)
}
