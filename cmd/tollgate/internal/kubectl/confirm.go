package kubectl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// ErrNobodyToAsk is why nothing was done that somebody has to agree to.
var ErrNobodyToAsk = errors.New("nobody can be asked, since the input is no terminal: give --yes")

// Confirm asks a question on out, and reports whether the answer on in is yes. Without a
// terminal the error is ErrNobodyToAsk. No answer is no.
func Confirm(in io.Reader, out io.Writer, question string) (bool, error) {
	// Terminal takes /dev/null for one, where nobody answers.
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return false, ErrNobodyToAsk
	}
	return confirm(in, out, question)
}

func confirm(in io.Reader, out io.Writer, question string) (bool, error) {
	if _, err := fmt.Fprintf(out, "%s [y/N] ", question); err != nil {
		return false, fmt.Errorf("ask: %w", err)
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w", err)
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}
