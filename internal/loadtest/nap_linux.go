package loadtest

import (
	"syscall"
	"time"
)

// precisely sleeps for d, or less. time.Sleep does so to a millisecond on Linux, where an
// idle Go program waits for its timers in epoll.
func precisely(d time.Duration) {
	ts := syscall.NsecToTimespec(int64(d))
	syscall.Nanosleep(&ts, nil) // where a signal ends it, the caller sleeps again
}
