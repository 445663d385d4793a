package config

// Suggest returns "; did you mean X?" for the candidate that is nearest to name, or
// nothing where none is near. Ties go to the first.
func Suggest(name string, candidates []string) string {
	best, distance := "", 1+max(2, len(name)/6)
	for _, c := range candidates {
		if d := edits(name, c); d < distance {
			best, distance = c, d
		}
	}
	if best == "" {
		return ""
	}
	return didYouMean(best)
}

func didYouMean(name string) string { return "; did you mean " + name + "?" }

// edits returns the Levenshtein distance of a and b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
