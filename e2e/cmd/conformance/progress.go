package main

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// progressInterval is how often at most is told how many specs have ended.
const progressInterval = 30 * time.Second

// ended is the mark that ginkgo prints for each spec that has ended, whatever its outcome.
var ended = []byte("•")

// progress passes on what the program of the specs prints, and counts the specs that have ended. The progress that the
// specs can report to a URL has the beginning and the end of the suite alone.
type progress struct {
	log   io.Writer
	say   func(step string)
	count int
	told  time.Time
}

// Write is called by one goroutine at a time.
func (p *progress) Write(text []byte) (int, error) {
	if n := bytes.Count(text, ended); n > 0 {
		p.count += n
		if time.Since(p.told) > progressInterval {
			p.told = time.Now()
			p.say(fmt.Sprintf("specs that have ended: %d", p.count))
		}
	}
	return p.log.Write(text)
}
