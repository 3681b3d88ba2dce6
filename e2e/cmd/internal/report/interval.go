package report

import (
	"fmt"
	"math"
)

// studentT are the 0.975 quantiles of Student's t distribution by degrees of freedom, from one.
// From the last one on the normal distribution is within 5 %, and the interval a little wide.
var studentT = []float64{
	12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
	2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
	2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
}

// Interval returns the 95 % interval of the geometric mean of ratios: the ratios of rounds, whose
// logarithms are taken for normally distributed. There is none of fewer than
// three, which would span orders of magnitude.
func Interval(ratios []float64) (low, high float64, ok bool) {
	n := len(ratios)
	if n < 3 {
		return 0, 0, false
	}
	logs := make([]float64, n)
	for i, ratio := range ratios {
		logs[i] = math.Log(ratio)
	}
	center, squares := Mean(logs), 0.0
	for _, l := range logs {
		squares += (l - center) * (l - center)
	}
	half := studentT[min(n-1, len(studentT))-1] * math.Sqrt(squares/float64(n-1)/float64(n))
	return math.Exp(center - half), math.Exp(center + half), true
}

// Ratio is the median of the ratios of rounds, (their range) and [the 95 % interval].
func Ratio(ratios []float64) string {
	text := Spread(ratios, 2)
	if low, high, ok := Interval(ratios); ok && text != "" {
		text += fmt.Sprintf(" [%.2f to %.2f]", low, high)
	}
	return text
}
