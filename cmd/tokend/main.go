// Command tokend serves one-time tokens; tokend help tells more.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	stderr := newLineWriter(os.Stderr)
	status := run(ctx, &program{
		args: os.Args[1:], environ: os.Environ(), stdin: os.Stdin, stdout: os.Stdout, stderr: stderr,
	})
	stderr.Flush()
	os.Exit(status)
}
