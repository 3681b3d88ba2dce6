package certs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestF04WaitUntil(t *testing.T) {
	t.Parallel()
	now := start()
	old, young := freshState(t, now), freshState(t, now)
	again := mustApply(t, stepIssue, old, now)
	c := &ownCA{options: &Options{Recheck: time.Minute}, wanted: *testWanted()}

	require.Zero(t, c.waitUntil(nil, young.serving), "nothing else works")
	require.Zero(t, c.waitUntil(old.serving, again.serving), "whoever trusts the one trusts the other")
	require.Equal(t, old.serving.leaf.NotAfter.Add(-time.Minute), c.waitUntil(old.serving, young.serving), "not trusted as far as is known")

	c.trust.see(young.bundle, now)
	require.Equal(t, now.Add(defaultBundleDelay), c.waitUntil(old.serving, young.serving))
	c.trust.see(young.bundle, now.Add(time.Hour))
	require.Equal(t, now.Add(defaultBundleDelay), c.waitUntil(old.serving, young.serving), "the first sight counts")
	c.trust.see(old.bundle, now.Add(2*time.Hour))
	c.trust.see(young.bundle, now.Add(3*time.Hour))
	require.Equal(t, now.Add(3*time.Hour+defaultBundleDelay), c.waitUntil(old.serving, young.serving), "it was away in between")
}
