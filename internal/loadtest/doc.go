// Package loadtest measures a service under load, for tokend bench and for this module's own
// bench: calls in a closed loop or an open one, and what they took.
//
// In a closed loop ([Closed]) each caller sends its next call when it has the answer to
// the last: it finds what a service can do at most. In an open loop ([Open]) calls arrive
// on their own, as users do: what they take is counted from when they were to arrive, so
// a service that stalls is charged for all who would have come meanwhile.
package loadtest
