package preview

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// The size of the picture, the edges of its plot, and the height of a line of text, in pixels.
const (
	pictureWidth, pictureHeight = 960, 360
	plotLeft, plotRight         = 60, 940
	plotTop, plotBottom         = 20, 270
	lineHeight                  = 14
)

// draw returns the simulation as a picture: the number of pods that have left over time, with a line for
// each step.
func (d *simulation) draw() string {
	last := 1.0
	for _, s := range d.Steps {
		last = max(last, s.At)
	}
	for _, pod := range d.Left {
		last = max(last, pod.At)
	}
	last *= 1.05
	most := float64(max(len(d.Left), 1))
	x := func(seconds float64) float64 { return plotLeft + seconds/last*(plotRight-plotLeft) }
	y := func(pods int) float64 { return plotBottom - float64(pods)/most*(plotBottom-plotTop) }
	var svg strings.Builder
	add := func(format string, values ...any) { fmt.Fprintf(&svg, format, values...) }
	add(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">
<title>%s</title>
<rect width="%d" height="%d" fill="#fff"/>
`,
		pictureWidth, pictureHeight, pictureWidth, pictureHeight, html.EscapeString(strings.Join(strings.Fields(d.sums()), " ")), pictureWidth, pictureHeight)
	for i := range 5 {
		pods, at := int(math.Round(most*float64(i)/4)), last*float64(i)/4
		add(`<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%d</text>
<text x="%.1f" y="%d" text-anchor="middle">%s</text>
`,
			plotLeft, y(pods), plotRight, plotLeft-8, y(pods)+4, pods,
			x(at), plotBottom+18, time.Duration(at*float64(time.Second)).Round(time.Second))
	}
	for i, s := range d.Steps {
		colour := "#b45309"
		if !s.Applied {
			colour = "#9ca3af"
		}
		add(`<path d="M%.1f %dV%d" stroke="%s" stroke-dasharray="4 3"/>`+"\n", x(s.At), plotTop, plotBottom, colour)
		if at := plotBottom + 36 + i*lineHeight; at < pictureHeight {
			add(`<text x="%d" y="%d" fill="%s">%s %s</text>`+"\n", plotLeft, at, colour, after(s.At), html.EscapeString(s.Step))
		}
	}
	add(`<path d="M%.1f %.1f`, x(0), y(0))
	for i, pod := range d.Left {
		add("H%.1fV%.1f", x(pod.At), y(i+1))
	}
	add(`H%d" fill="none" stroke="#1d4ed8" stroke-width="2"/>
<text x="%d" y="%d">pods that have left; %d held, %d due later</text>
</svg>
`, plotRight, plotLeft+8, plotTop, len(d.Held), len(d.Waiting))
	return svg.String()
}
