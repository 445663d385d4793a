// Package scale holds the store and the program to what they promise on more than one Redis:
// a cluster of three masters with replicas, and a master with two replicas under three
// Sentinels. Masters are killed and slots moved while callers call.
//
// It has tests only.
package scale
