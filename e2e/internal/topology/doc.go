// Package topology starts what tokend runs on when one Redis is not enough: a cluster of
// masters with replicas, a master with replicas under three Sentinels, and tokend itself.
// Everything listens on loopback, on private ports, and works in directories of its own.
//
// It serves tests and programs alike: errors are returned, and whoever starts something
// closes it.
package topology
