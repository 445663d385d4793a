package auth

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestClaims signs each claim as it must not be, and as it may. What is not said is good.
func TestClaims(t *testing.T) {
	exp := func(v string) string { return `{"sub":"alice","exp":` + v + `,"iss":"i","aud":"a"}` }
	with := func(more string) string { return alice(`,"iss":"i","aud":"a",` + more) }
	sub := func(v string) string { return `{"sub":` + v + `,"exp":` + at(time.Hour) + `,"iss":"i","aud":"a"}` }
	iss := func(v string) string { return alice(`,"aud":"a",` + v) }
	aud := func(v string) string { return alice(`,"iss":"i",` + v) }

	tests := []struct {
		name   string
		claims string
		want   *Reason
	}{
		{"good", with(`"jti":"1"`), nil},

		{"no exp", `{"sub":"alice","iss":"i","aud":"a"}`, ErrExpiry},
		{"exp null", exp(`null`), ErrExpiry},
		{"exp a string", exp(`"` + at(time.Hour) + `"`), ErrExpiry},
		{"exp a short string", exp(`"999"`), ErrExpiry},
		{"exp true", exp(`true`), ErrExpiry},
		{"exp a list", exp(`[` + at(time.Hour) + `]`), ErrExpiry},
		{"exp an object", exp(`{}`), ErrExpiry},
		{"exp overflows a float", exp(`1e400`), ErrExpiry},
		{"exp huge", exp(`1e300`), ErrExpiry},
		{"exp overflows a time", exp(`9223372036854775807`), ErrExpiry},
		{"exp overflows 64 bits", exp(`18446744073709551617`), ErrExpiry},
		{"exp behind 9999", exp(`253402300800`), ErrExpiry},
		{"exp at the end of 9999", exp(`253402300799`), nil},
		{"exp tiny", exp(`1e-400`), ErrExpired},
		{"exp 0", exp(`0`), ErrExpired},
		{"exp -0", exp(`-0`), ErrExpired},
		{"exp negative", exp(`-1`), ErrExpired},
		{"exp hugely negative", exp(`-1e300`), ErrExpiry},
		{"exp in milliseconds", exp(at(time.Hour) + `000`), ErrExpiry},
		{"EXP", `{"sub":"alice","EXP":` + at(time.Hour) + `,"iss":"i","aud":"a"}`, ErrExpiry},
		{"exp escaped", `{"sub":"alice","\u0065xp":` + at(time.Hour) + `,"iss":"i","aud":"a"}`, nil},
		{"exp with an exponent", exp(`2e9`), nil},
		{"exp now, within the leeway", exp(at(0)), nil},
		{"exp just within the leeway", exp(at(-29 * time.Second)), nil},
		{"exp a fraction within the leeway", exp(at(-30*time.Second) + `.5`), nil},
		{"exp at the end of the leeway", exp(at(-30 * time.Second)), ErrExpired},
		{"exp past the leeway", exp(at(-31 * time.Second)), ErrExpired},

		{"nbf past", with(`"nbf":` + at(-time.Hour)), nil},
		{"nbf negative", with(`"nbf":-1`), nil},
		{"nbf at the leeway", with(`"nbf":` + at(30*time.Second)), nil},
		{"nbf past the leeway", with(`"nbf":` + at(31*time.Second)), ErrNotYet},
		{"nbf null", with(`"nbf":null`), ErrNotBefore},
		{"nbf a string", with(`"nbf":"0"`), ErrNotBefore},
		{"nbf a list", with(`"nbf":[]`), ErrNotBefore},
		{"nbf false", with(`"nbf":false`), ErrNotBefore},
		{"nbf 1e400", with(`"nbf":1e400`), ErrNotBefore},
		{"NBF binds nothing", with(`"NBF":` + at(time.Hour)), nil},
		{"iat past", with(`"iat":` + at(-time.Hour)), nil},
		{"iat to come is not looked at", with(`"iat":` + at(time.Hour)), nil},
		{"iat null", with(`"iat":null`), ErrIssuedAt},
		{"iat a string", with(`"iat":"0"`), ErrIssuedAt},
		{"iat an object", with(`"iat":{}`), ErrIssuedAt},

		{"no iss", iss(`"x":1`), ErrIssuer},
		{"wrong iss", iss(`"iss":"j"`), ErrIssuer},
		{"iss with a slash", iss(`"iss":"i/"`), ErrIssuer},
		{"iss in upper case", iss(`"iss":"I"`), ErrIssuer},
		{"iss empty", iss(`"iss":""`), ErrIssuer},
		{"iss null", iss(`"iss":null`), ErrIssuer},
		{"iss a list", iss(`"iss":["i"]`), ErrIssuer},
		{"iss a number", iss(`"iss":1`), ErrIssuer},
		{"ISS", iss(`"ISS":"i"`), ErrIssuer},

		{"no aud", aud(`"x":1`), ErrAudience},
		{"wrong aud", aud(`"aud":"c"`), ErrAudience},
		{"the second audience", aud(`"aud":"b"`), nil},
		{"aud a list", aud(`"aud":["c","a"]`), nil},
		{"two audiences, both accepted", aud(`"aud":["a","b"]`), nil},
		{"aud a list of others", aud(`"aud":["c","d"]`), ErrAudience},
		{"aud an empty list", aud(`"aud":[]`), ErrAudience},
		{"aud empty", aud(`"aud":""`), ErrAudience},
		{"aud of empty", aud(`"aud":[""]`), ErrAudience},
		{"aud null", aud(`"aud":null`), ErrAudience},
		{"aud a number", aud(`"aud":1`), ErrAudience},
		{"aud an object", aud(`"aud":{"a":"a"}`), ErrAudience},
		{"aud holds a number", aud(`"aud":["a",1]`), ErrAudience},
		{"aud holds null", aud(`"aud":["a",null]`), ErrAudience},
		{"aud nested", aud(`"aud":[["a"]]`), ErrAudience},
		{"aud of two in one string", aud(`"aud":"a b"`), ErrAudience},
		{"AUD", aud(`"AUD":"a"`), ErrAudience},

		{"no sub", `{"exp":` + at(time.Hour) + `,"iss":"i","aud":"a"}`, ErrUserClaim},
		{"sub empty", sub(`""`), ErrUserClaim},
		{"sub null", sub(`null`), ErrUserClaim},
		{"sub a number", sub(`42`), ErrUserClaim},
		{"sub true", sub(`true`), ErrUserClaim},
		{"sub a list", sub(`["alice"]`), ErrUserClaim},
		{"sub an object", sub(`{"id":"alice"}`), ErrUserClaim},
		{"sub with a line break", sub(`"alice\nbob"`), ErrUserClaim},
		{"sub with NUL", sub(`"alice\u0000"`), ErrUserClaim},
		{"sub with C1", sub(`"alice\u0085"`), ErrUserClaim},
		{"sub of 256 bytes", sub(`"` + strings.Repeat("a", 256) + `"`), nil},
		{"sub of 257 bytes", sub(`"` + strings.Repeat("a", 257) + `"`), ErrUserClaim},
		{"SUB", `{"SUB":"alice","exp":` + at(time.Hour) + `,"iss":"i","aud":"a"}`, ErrUserClaim},
		{"sub folded", `{"` + "\u017f" + `ub":"alice","exp":` + at(time.Hour) + `,"iss":"i","aud":"a"}`, ErrUserClaim},
		{"Sub beside sub", with(`"Sub":"bob"`), nil},

		{"scope a number", with(`"scope":1`), ErrScopeClaim},
		{"scope null", with(`"scope":null`), ErrScopeClaim},
		{"scope true", with(`"scope":true`), ErrScopeClaim},
		{"scope an object", with(`"scope":{"tokend.consume":true}`), ErrScopeClaim},
		{"scope holds a number", with(`"scope":["tokend.consume",1]`), ErrScopeClaim},
		{"scope holds null", with(`"scope":[null]`), ErrScopeClaim},
		{"scope holds a list", with(`"scope":[["tokend.consume"]]`), ErrScopeClaim},

		{"exp twice", with(`"exp":` + at(time.Hour)), ErrClaims},
		{"sub twice", with(`"sub":"alice"`), ErrClaims},
		{"sub twice by escape", with(`"s\u0075b":"bob"`), ErrClaims},
		{"another claim twice", with(`"x":1,"x":2`), ErrClaims},
		{"deep name twice", with(`"x":[{"y":1,"y":2}]`), ErrClaims},
		{"invalid UTF-8", with("\"x\":\"\xff\""), ErrClaims},
		{"lone surrogate", with(`"x":"\ud800"`), ErrClaims},
		{"claims null", `null`, ErrClaims},
		{"claims a list", `[]`, ErrClaims},
		{"claims a string", `"alice"`, ErrClaims},
		{"claims a number", `1`, ErrClaims},
		{"claims empty", `{}`, ErrExpiry},
		{"a number that overflows in a claim that nobody reads", with(`"x":1e400`), nil},
	}
	a := open(t, Config{
		Secrets: [][]byte{secret}, Issuer: "i", Audience: []string{"a", "b"}, Leeway: DefaultLeeway,
	})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			id, err := ask(a, hs256(tt.claims))
			wantReason(t, err, tt.want)
			if err == nil && !id.IsUser() || err != nil && id != (Identity{}) {
				t.Errorf("identity is %+v", id)
			}
		})
	}
}

// TestIdentities tells users from services.
func TestIdentities(t *testing.T) {
	user := Identity{Kind: User, User: "alice"}
	service := func(s Scopes) Identity { return Identity{Kind: Service, Name: "alice", Scopes: s} }

	tests := []struct {
		name   string
		config Config
		claims string
		want   Identity
		no     *Reason
	}{
		{"no scope", Config{}, alice(``), user, nil},
		{"empty scope", Config{}, alice(`,"scope":""`), user, nil},
		{"empty list", Config{}, alice(`,"scope":[]`), user, nil},
		{"other scopes", Config{}, alice(`,"scope":"openid profile"`), user, nil},
		{"part of a word", Config{}, alice(`,"scope":"tokend.consume2 xtokend.issue tokend. tokend"`), user, nil},
		{"another case", Config{}, alice(`,"scope":"Tokend.Consume TOKEND.ISSUE"`), user, nil},
		{"tab", Config{}, alice(`,"scope":"tokend.issue\ttokend.consume"`), user, nil},
		{"line break", Config{}, alice(`,"scope":"tokend.consume\n"`), user, nil},
		{"one", Config{}, alice(`,"scope":"tokend.consume"`), service(ScopeConsume), nil},
		{"two", Config{}, alice(`,"scope":"tokend.issue tokend.consume"`), service(ScopeIssue | ScopeConsume), nil},
		{"among others, spaces", Config{}, alice(`,"scope":"  openid  tokend.issue "`), service(ScopeIssue), nil},
		{"list", Config{}, alice(`,"scope":["openid","tokend.issue"]`), service(ScopeIssue), nil},
		{"an item is one word", Config{}, alice(`,"scope":["tokend.issue tokend.consume"]`), user, nil},
		{"scp is not scope", Config{}, alice(`,"scp":"tokend.consume"`), user, nil},
		{"SCOPE is not scope", Config{}, alice(`,"SCOPE":"tokend.consume"`), user, nil},
		{"roles", Config{ScopeClaim: "roles"}, alice(`,"roles":["tokend.consume"]`), service(ScopeConsume), nil},
		{"roles, not scope", Config{ScopeClaim: "roles"}, alice(`,"scope":"tokend.consume"`), user, nil},
		{"user claim", Config{UserClaim: "email"}, alice(`,"email":"a@b"`), Identity{Kind: User, User: "a@b"}, nil},
		{"user claim without sub", Config{UserClaim: "email"}, `{"email":"a@b","exp":` + at(time.Hour) + `}`, Identity{Kind: User, User: "a@b"}, nil},
		{"no user claim", Config{UserClaim: "email"}, alice(``), Identity{}, ErrUserClaim},
		{"a service's user claim", Config{UserClaim: "email"}, alice(`,"scope":"tokend.consume"`), Identity{}, ErrUserClaim},
		{"service claim met", Config{ServiceClaim: "gty=client-credentials"}, alice(`,"scope":"tokend.consume","gty":"client-credentials"`), service(ScopeConsume), nil},
		{"service claim with =", Config{ServiceClaim: "gty=a=b"}, alice(`,"scope":"tokend.consume","gty":"a=b"`), service(ScopeConsume), nil},
		{"service claim missing", Config{ServiceClaim: "gty=cc"}, alice(`,"scope":"tokend.consume"`), Identity{}, ErrServiceClaim},
		{"service claim of another value", Config{ServiceClaim: "gty=cc"}, alice(`,"scope":"tokend.consume","gty":"password"`), Identity{}, ErrServiceClaim},
		{"service claim in another case", Config{ServiceClaim: "gty=cc"}, alice(`,"scope":"tokend.consume","gty":"CC"`), Identity{}, ErrServiceClaim},
		{"service claim a list", Config{ServiceClaim: "gty=cc"}, alice(`,"scope":"tokend.consume","gty":["cc"]`), Identity{}, ErrServiceClaim},
		{"service claim true", Config{ServiceClaim: "gty=true"}, alice(`,"scope":"tokend.consume","gty":true`), Identity{}, ErrServiceClaim},
		{"service claim null", Config{ServiceClaim: "gty=null"}, alice(`,"scope":"tokend.consume","gty":null`), Identity{}, ErrServiceClaim},
		{"service claim is not asked of users", Config{ServiceClaim: "gty=cc"}, alice(``), user, nil},
		{"service claim makes no service", Config{ServiceClaim: "gty=cc"}, alice(`,"gty":"cc"`), user, nil},
		{"client_id names", Config{}, alice(`,"scope":"tokend.issue","client_id":"orders"`), Identity{Kind: Service, Name: "orders", Scopes: ScopeIssue}, nil},
		{"client_id of another type", Config{}, alice(`,"scope":"tokend.issue","client_id":7`), service(ScopeIssue), nil},
		{"a name to forge a log line", Config{}, alice(`,"scope":"tokend.issue","client_id":"a\nb c\u00e9"`), Identity{Kind: Service, Name: "a_b_c__", Scopes: ScopeIssue}, nil},
		{"a long name", Config{}, alice(`,"scope":"tokend.issue","client_id":"` + strings.Repeat("n", 900) + `"`), Identity{Kind: Service, Name: strings.Repeat("n", 64), Scopes: ScopeIssue}, nil},
		{"wrong types that nobody asks for", Config{}, alice(`,"iss":1,"aud":{},"client_id":null,"jti":[]`), user, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.config.Secrets = [][]byte{secret}
			a := open(t, tt.config)
			for range 2 { // the second time from the cache, or again refused
				got, err := ask(a, hs256(tt.claims))
				wantReason(t, err, tt.no)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
