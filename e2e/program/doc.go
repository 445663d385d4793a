// Package program holds the program to what it promises while things around it break:
// tokend serve is built, run as a process against private redis-servers, killed, paused
// and starved, and sent what no well-behaved client sends.
//
// It has tests only. They know the service by its flags, variables, signals, exit
// statuses, log and wire alone. Built with -race, they build the program with it too.
package program
