// Package databases starts real databases for tests: private ones, on loopback, with a
// directory of their own. The servers start with the first test that asks for one and serve
// all tests of the package; each test has a database of its own in it.
//
//	func TestMain(m *testing.M) { os.Exit(databases.Run(m)) } // which ends the servers
//
// A server that is not installed fails the test: one that needs the real thing is never
// skipped.
package databases
