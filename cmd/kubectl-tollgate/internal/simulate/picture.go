package simulate

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

// The size of the picture and of its margins, in pixels.
const (
	pictureWidth, pictureHeight = 960, 360
	marginLeft, marginRight     = 60, 20
	marginTop, marginBottom     = 20, 90
	lineHeight                  = 14
)

// draw writes the document as a picture: the number of pods that have left over time, with a line for
// each step.
func (d *document) draw(w io.Writer) error {
	last := 1.0
	for _, s := range d.Steps {
		last = max(last, s.At)
	}
	for _, pod := range d.Left {
		last = max(last, pod.At)
	}
	last *= 1.05
	most := max(len(d.Left), 1)
	x := func(seconds float64) float64 {
		return marginLeft + seconds/last*(pictureWidth-marginLeft-marginRight)
	}
	y := func(pods int) float64 {
		return pictureHeight - marginBottom - float64(pods)/float64(most)*(pictureHeight-marginTop-marginBottom)
	}
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" role="img">`+"\n",
		pictureWidth, pictureHeight, pictureWidth, pictureHeight)
	fmt.Fprintf(&svg, "<title>%s</title>\n", html.EscapeString(strings.Join(strings.Fields(d.sums()), " ")))
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", pictureWidth, pictureHeight)
	for i := range 5 {
		pods := int(math.Round(float64(most) * float64(i) / 4))
		fmt.Fprintf(&svg, `<path d="M%d %.1fH%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n",
			marginLeft, y(pods), pictureWidth-marginRight, marginLeft-8, y(pods)+4, pods)
		at := last * float64(i) / 4
		fmt.Fprintf(&svg, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			x(at), pictureHeight-marginBottom+18, time.Duration(at*float64(time.Second)).Round(time.Second))
	}
	for i, s := range d.Steps {
		colour := "#b45309"
		if !s.Applied {
			colour = "#9ca3af"
		}
		fmt.Fprintf(&svg, `<path d="M%.1f %dV%d" stroke="%s" stroke-dasharray="4 3"/>`+"\n", x(s.At), marginTop, pictureHeight-marginBottom, colour)
		if at := pictureHeight - marginBottom + 36 + i*lineHeight; at < pictureHeight {
			fmt.Fprintf(&svg, `<text x="%d" y="%d" fill="%s">%s %s</text>`+"\n", marginLeft, at, colour, after(s.At), html.EscapeString(s.Step))
		}
	}
	fmt.Fprintf(&svg, `<path d="M%.1f %.1f`, x(0), y(0))
	for i, pod := range d.Left {
		fmt.Fprintf(&svg, "H%.1fV%.1f", x(pod.At), y(i+1))
	}
	fmt.Fprintf(&svg, `H%d" fill="none" stroke="#1d4ed8" stroke-width="2"/>`+"\n", pictureWidth-marginRight)
	fmt.Fprintf(&svg, `<text x="%d" y="%d">pods that have left; %d held, %d due later</text>`+"\n</svg>\n", marginLeft+8, marginTop, len(d.Held), len(d.Waiting))
	if _, err := io.WriteString(w, svg.String()); err != nil {
		return fmt.Errorf("write picture: %w", err)
	}
	return nil
}
