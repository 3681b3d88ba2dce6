package handlers

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/tollgate-dev/tollgate/policy"
)

func TestC04ATaintThatWasJustSetCounts(t *testing.T) {
	config := passConfig(t)
	config.Cache = storing(nodeTainted("banana"))
	response := judgePod(t, config, asked(t, "pods", "", named("mallory"), onNode("banana", ""), nil))
	requireRefused(t, response, policy.TaintNotTolerated, "spec.nodeName")
}

func TestAFloodOfPodsOnNodesIsAnsweredFromTheCache(t *testing.T) {
	live := storing(nodeTainted("banana", forBanana))
	cache := storing(nodeTainted("banana", forBanana))
	nodes := newLiveNodes(live, cache, clocktesting.NewFakePassiveClock(time.Now()))
	for range 2 * confirmationsOnce {
		taints, found, err := nodes.taints(t.Context(), "banana")
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, []corev1.Taint{forBanana}, taints)
	}
	require.Equal(t, confirmationsOnce, live.asked())
	require.Equal(t, confirmationsOnce, cache.asked())

	_, found, err := nodes.taints(t.Context(), "none")
	require.NoError(t, err)
	require.False(t, found, "what the cache does not know is judged like a node that may come")

	t.Run("a fault of the cache is no verdict", func(t *testing.T) {
		cache.fault = io.ErrUnexpectedEOF
		_, _, err := nodes.taints(t.Context(), "banana")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
	t.Run("without a cache there is no verdict", func(t *testing.T) {
		nodes.cache = nil
		_, _, err := nodes.taints(t.Context(), "banana")
		require.ErrorIs(t, err, errTooManyReads)
	})
	t.Run("a fault of the API server is no verdict", func(t *testing.T) {
		broken := storing()
		broken.fault = io.ErrUnexpectedEOF
		_, _, err := newLiveNodes(broken, storing(), clocktesting.NewFakePassiveClock(time.Now())).taints(t.Context(), "banana")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}
