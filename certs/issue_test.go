package certs

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// endless is a file system of one file without an end.
type endless struct{ read int }

func (e *endless) Open(string) (fs.File, error) { return e, nil }

func (e *endless) Stat() (fs.FileInfo, error) { return fs.Stat(fstest.MapFS{"f": {}}, "f") }

func (e *endless) Close() error { return nil }

func (e *endless) Read(p []byte) (int, error) {
	clear(p)
	e.read += len(p)
	return len(p), nil
}

func TestF05NoMoreIsReadOfAFileThanShowsThatItIsTooLarge(t *testing.T) {
	t.Parallel()
	file := &endless{}
	data, err := readCapped(file, corev1.TLSCertKey)
	require.NoError(t, err)
	require.Len(t, data, maxPEM+1)
	require.Equal(t, maxPEM+1, file.read)
}

// Oversized data is neither copied nor searched for blocks: each of five values leaves one
// error. The test counts allocations of the whole process, so nothing else runs meanwhile.
func TestF05WhatIsTooLargeIsNotDecoded(t *testing.T) {
	require.LessOrEqual(t, maxPEM, 64<<10, "what is decoded is bounded by this alone")
	const allocations = 100 // counted with the race detector: 40
	data := megabyteOfPEM()
	secret := &corev1.Secret{Data: map[string][]byte{
		dataBundle: data, dataCAKey: data, dataNextCAKey: data, dataServingCert: data, dataServingKey: data,
	}}
	counted := testing.AllocsPerRun(10, func() { parseState(secret) })
	require.LessOrEqual(t, counted, float64(allocations))
	require.Len(t, parseState(secret).problems, 4)
}
