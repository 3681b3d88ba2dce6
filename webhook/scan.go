package webhook

// jsonDepth returns how deep the objects and lists of data are nested, and stops
// counting at one more than maxDepth. It does not judge whether data is JSON.
func jsonDepth(data []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i)
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
			if deepest > maxDepth {
				return deepest
			}
		case '}', ']':
			depth--
		}
	}
	return deepest
}

// endOfString returns the index of the quote that ends the string that starts
// at i, or the last index of data.
func endOfString(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return len(data) - 1
}

// countElements returns at least how many values data holds. Decoding turns each
// into a value of fixed size, however few bytes it takes in JSON, so their number
// bounds what decoding costs.
func countElements(data []byte) int {
	n := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i = endOfString(data, i)
		case '{', '[', ',':
			n++
		}
	}
	return n
}
