package sqlguard_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"example.com/tokend/client/sqlguard"
	"example.com/tokend/e2e/internal/databases"
)

// What the process that is to be killed is told.
const (
	crashPoint   = "SQLGUARD_TEST_CRASH_AT"
	crashDialect = "SQLGUARD_TEST_CRASH_DIALECT"
	crashDriver  = "SQLGUARD_TEST_CRASH_DRIVER"
	crashDSN     = "SQLGUARD_TEST_CRASH_DSN"
)

// crash does a work once, and stands still at a point until it is killed.
func crash() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the test is gone, and nobody kills
	}()
	at := func(here string) {
		if here == os.Getenv(crashPoint) {
			fmt.Println("stopped")
			select {}
		}
	}
	dialect, err1 := strconv.Atoi(os.Getenv(crashDialect))
	db, err2 := sql.Open(os.Getenv(crashDriver), os.Getenv(crashDSN))
	g, err3 := sqlguard.New(sqlguard.Dialect(dialect), sqlguard.ErrorCode(errorCode))
	if err := errors.Join(err1, err2, err3); err != nil {
		panic(err)
	}
	_, err := g.Do(context.Background(), db, id("k"), "d", func(ctx context.Context, tx sqlguard.Tx) ([]byte, error) {
		at("registered")
		_, err := tx.ExecContext(ctx, "INSERT INTO works (what, by_run) VALUES ('k', 0)")
		at("worked")
		return []byte("of the process"), err
	})
	if err != nil {
		panic(err)
	}
	at("committed")
}

// A process is killed before its commit: nothing is left, and a repeat does the work. After it
// the record is there.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"registered", "worked", "committed"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			databases.Each(t, func(t *testing.T, d *databases.Database) {
				p := open(t, d)
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), crashPoint+"="+point, crashDialect+"="+strconv.Itoa(int(d.Dialect)), crashDriver+"="+d.Driver, crashDSN+"="+d.DSN)
				cmd.Stderr = t.Output()
				if _, err := cmd.StdinPipe(); err != nil {
					t.Fatal(err)
				}
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				line, _ := bufio.NewReader(out).ReadString('\n')
				cmd.Process.Kill() // SIGKILL
				cmd.Wait()
				if line != "stopped\n" {
					t.Fatalf("the process said %q", line)
				}
				a := p.do(id("k"), "d") // waits, where the server has not yet heard of the end
				if a.Replayed != (point == "committed") {
					t.Errorf("a repeat got %+v", a)
				}
				p.wantWorks(1)
			})
		})
	}
}

// The answer to the commit is lost. Do finds out that it was carried out; Run cannot, and says
// so.
func TestLostCommit(t *testing.T) {
	servers(t, func(p *place) {
		proxy, db := p.through()

		proxy.DropReply("commit")
		a, err := p.g.Do(p.Context(), db, id("k"), "d", p.work("k"))
		if err != nil || !a.Replayed || !bytes.Equal(a.Result, []byte(`{"what":"k","run":1}`)) {
			p.Errorf("Do: %s, %v, %v", a.Result, a.Replayed, err)
		}
		p.wantRuns(1)
		p.wantWorks(1)

		proxy.DropReply("commit")
		err = p.g.Run(p.Context(), db, func(ctx context.Context, tx sqlguard.Tx) error {
			_, err := p.work("run")(ctx, tx)
			return err
		})
		if !errors.Is(err, sqlguard.ErrCommitUnknown) || errors.Is(err, sqlguard.ErrRetryTransaction) {
			p.Errorf("Run: %v, want ErrCommitUnknown", err)
		}
		p.wantRuns(2)
		p.wantWorks(2) // it was carried out
		if n := proxy.Dropped(); n != 2 {
			p.Errorf("%d replies were lost", n)
		}

		// Before the commit, the loss of the connection is the end of the transaction.
		proxy.DropReply("insert into works")
		if _, err := p.g.Do(p.Context(), db, id("cut"), "d", p.work("cut")); err == nil || errors.Is(err, sqlguard.ErrCommitUnknown) {
			p.Errorf("cut off before the commit: %v", err)
		}
		p.wantWorks(2)
		if a := p.do(id("cut"), "d"); a.Replayed {
			p.Errorf("a repeat got %+v", a)
		}
		p.wantWorks(3)
	})
}
