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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	stderr := newLineWriter(os.Stderr)
	status := run(ctx, &program{
		args: os.Args[1:], environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: stderr,
	})
	stderr.Flush(time.Second)
	os.Exit(status)
}
