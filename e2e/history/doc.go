// Package history records what many callers ask of tokend and hear from it while things
// break, and checks that the answers fit together.
//
// Each token or key is a [Subject] with a history of its own. [Subject.Check] holds it to a
// model of what one token or key does (states, claims, fences, leases, attempts), by the
// linearizability checker porcupine: there must be an order of the calls, each at a moment
// between its sending and its answer, in which every answer is the right one. A call that was
// not answered may have happened, at any later time, or not. One that tokend may have sent to
// Redis twice may happen again, later.
//
// Times are facts, too: Redis's clock and the recorder's are of one machine, so a lease that
// is said to be running, or over, must have been so between the sending and the answer.
//
// Beside the model stand plain statements about a history ([Subject.Violations]), for the
// promises that a reader knows: no two attempts are granted a token, no success becomes a
// refusal, nothing that was used reads as expired, two claims are never held at once.
//
// [Load] makes the calls. The tests run it against two instances of the built program and
// break what it stands on; see TestHistory for its flags. The checker is itself checked, with
// scripts that were broken on purpose.
package history
