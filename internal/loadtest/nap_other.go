//go:build !linux

package loadtest

import "time"

func precisely(d time.Duration) { time.Sleep(d) }
