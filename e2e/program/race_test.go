//go:build race

package program_test

const raceEnabled = true
