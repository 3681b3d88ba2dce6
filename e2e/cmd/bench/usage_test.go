package main

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCPUTimeGrowsWithWork(t *testing.T) {
	read := func() (process, machine time.Duration) {
		process, err := processCPU("self")
		require.NoError(t, err)
		machine, err = machineCPU()
		require.NoError(t, err)
		return process, machine
	}
	process, machine := read()
	// The two are not brought up to date together, so this goes on until both
	// show it.
	for deadline := time.Now().Add(time.Minute); ; {
		laterProcess, laterMachine := read()
		if laterProcess > process && laterMachine > machine {
			return
		}
		require.True(t, time.Now().Before(deadline), "%s, %s", laterProcess-process, laterMachine-machine)
	}
}

func TestPeakMemoryOfThisProcess(t *testing.T) {
	peak, err := peakMemory(os.Getpid())
	require.NoError(t, err)
	require.Greater(t, peak, int64(1<<20))
	require.Less(t, peak, int64(1<<40))
}

func TestSumTicks(t *testing.T) {
	sum, err := sumTicks([]string{"cpu", "100", "1", "10"}, 1, 3)
	require.NoError(t, err)
	require.Equal(t, 1100*time.Millisecond, sum)

	_, err = sumTicks([]string{"cpu"}, 1)
	require.ErrorContains(t, err, "1 fields")
	_, err = sumTicks([]string{"cpu", "many"}, 1)
	require.ErrorContains(t, err, "many")
}

func TestOthersAreWhatIsLeft(t *testing.T) {
	u := usage{machine: 10 * time.Second, self: time.Second, cpu: map[string]time.Duration{"a": 2 * time.Second, "b": 3 * time.Second}}
	require.Equal(t, 4*time.Second, u.others())
}
