// Command tokend serves one-time tokens; tokend help tells more.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

func main() {
	if os.Getenv("GOGC") == "" {
		// What lives is a few megabytes, what a request leaves behind a few kilobytes: to
		// collect that less often costs little memory and saves a twentieth of the time.
		debug.SetGCPercent(800)
	}
	ctx, end := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals) // before anything can be seen of the first one: a second ends the program at once
		end()
	}()
	stderr := newLineWriter(os.Stderr)
	status := run(ctx, &program{
		args: os.Args[1:], environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: stderr,
	})
	stderr.Flush(time.Second)
	os.Exit(status)
}
