package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ACLFile is deploy/redis.acl.
func ACLFile() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "deploy", "redis.acl")
}

var passwordHash = regexp.MustCompile(`^#[A-Z_0-9]+$`) // of which [ACLFile] has the place

// Rules returns what the user called name is allowed by deploy/redis.acl, as ACL SETUSER
// takes it; the password is password.
func Rules(name, password string) ([]string, error) {
	text, err := os.ReadFile(ACLFile())
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		rules, ok := strings.CutPrefix(line, "user "+name+" ")
		if !ok {
			continue
		}
		fields := strings.Fields(rules)
		for i, f := range fields {
			if passwordHash.MatchString(f) {
				fields[i] = ">" + password
			}
		}
		return fields, nil
	}
	return nil, fmt.Errorf("%s: there is no user %s", ACLFile(), name)
}

// Password is that of the users that [Server.AddUser] adds.
const Password = "redistest"

// ForCluster is what the user tokend needs besides, to find the nodes of a cluster and to
// follow slots that move.
var ForCluster = []string{"+cluster|slots", "+command", "+asking"}

// AddUser adds the user called name to the server, who may do what deploy/redis.acl allows,
// and more.
func (s *Server) AddUser(name string, more ...string) {
	s.t.Helper()
	rules, err := Rules(name, Password)
	if err != nil {
		s.t.Fatal(err)
	}
	args := []any{"ACL", "SETUSER", name, "reset"}
	for _, r := range append(rules, more...) {
		args = append(args, r)
	}
	if err := s.Client().Do(context.Background(), args...).Err(); err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
}

// ClientAs returns a plain client that is the user called name, closed with the test.
func (s *Server) ClientAs(name string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr, Username: name, Password: Password, ContextTimeoutEnabled: true, DialerRetries: 1})
	s.t.Cleanup(func() { c.Close() })
	return c
}

// Denied returns what users were denied since the server started: commands, keys and
// channels.
func (s *Server) Denied() []string {
	s.t.Helper()
	entries, err := s.Client().ACLLog(context.Background(), 100).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	var denied []string
	for _, e := range entries {
		denied = append(denied, e.Reason+" "+e.Object)
	}
	return denied
}
