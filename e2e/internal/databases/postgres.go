package databases

import (
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
)

const debianPostgres = "/usr/lib/postgresql/*/bin/"

var postgres = &server{
	user: "postgres",
	end:  syscall.SIGQUIT, // SIGKILL would leave its shared memory
	prepare: func(s *server) error {
		initdb, err := find("initdb", debianPostgres+"initdb")
		if err != nil {
			return err
		}
		password, err := s.write("password", s.password)
		if err != nil {
			return err
		}
		cmd := s.command(initdb, "--pgdata", filepath.Join(s.dir, "data"), "--no-sync", "--username", "tests",
			"--pwfile", password, "--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("initdb: %w\n%s", err, out)
		}
		return nil
	},
	start: func(s *server, port string) *exec.Cmd {
		path, _ := find("postgres", debianPostgres+"postgres") // beside initdb
		return s.command(path, "-D", filepath.Join(s.dir, "data"), "-p", port, "-k", s.dir, "-h", "127.0.0.1",
			"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
			"-c", "shared_buffers=32MB", "-c", "max_connections=200", "-c", "autovacuum=off", "-c", "deadlock_timeout=100ms")
	},
	open: func(s *server) (*sql.DB, error) { return sql.Open("pgx", s.postgresURL("postgres", "")) },
}

func (s *server) postgresURL(database, parameters string) string {
	return "postgres://tests:" + s.password + "@" + s.addr + "/" + database + "?sslmode=disable" + parameters
}
