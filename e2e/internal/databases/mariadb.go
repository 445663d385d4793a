package databases

import (
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
)

var mariadb = &server{
	user: "mysql",
	end:  syscall.SIGKILL, // nothing of it is kept
	prepare: func(s *server) error {
		install, err := find("mariadb-install-db", "/usr/share/mysql/mariadb-install-db")
		if err != nil {
			return err
		}
		cmd := s.command(install, "--no-defaults", "--datadir="+filepath.Join(s.dir, "data"), "--skip-test-db")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("mariadb-install-db: %w\n%s", err, out)
		}
		_, err = s.write("init", "CREATE USER tests@'127.0.0.1' IDENTIFIED BY '"+s.password+"';\n"+
			"GRANT ALL ON *.* TO tests@'127.0.0.1';\n")
		return err
	},
	start: func(s *server, port string) *exec.Cmd {
		path, err := find("mariadbd", "/usr/sbin/mariadbd")
		if err != nil {
			path = "mariadbd" // and to start it says so
		}
		return s.command(path, "--no-defaults", "--datadir="+filepath.Join(s.dir, "data"), "--bind-address=127.0.0.1",
			"--port="+port, "--socket="+filepath.Join(s.dir, "socket"), "--pid-file="+filepath.Join(s.dir, "pid"),
			"--init-file="+filepath.Join(s.dir, "init"), "--skip-name-resolve", "--skip-log-bin", "--max-connections=200",
			"--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M",
			"--character-set-server=utf8mb4")
	},
	open: func(s *server) (*sql.DB, error) { return sql.Open("mysql", s.mysqlDSN("mysql", "")) },
}

func (s *server) mysqlDSN(database, parameters string) string {
	return "tests:" + s.password + "@tcp(" + s.addr + ")/" + database + "?timeout=30s" + parameters
}
