package auth

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"example.com/tokend/token"
)

// TestEnvelope attacks all of a JWT but its claims. The same claims pass in the first case.
func TestEnvelope(t *testing.T) {
	const h = `{"alg":"HS256"}`
	claims := alice("")
	good := hs256(claims)
	head, rest, _ := strings.Cut(good, ".")
	body, sig, _ := strings.Cut(rest, ".")
	signed := func(header string) string { return sign("HS256", secret, header, claims) }
	unsigned := func(alg string) string { return b64(`{"alg":"`+alg+`"}`) + "." + body + "." }

	tests := []struct {
		name string
		text string
		want *Reason
	}{
		{"good", good, nil},

		{"none", unsigned("none"), ErrAlgorithm},
		{"None", unsigned("None"), ErrAlgorithm},
		{"NONE", unsigned("NONE"), ErrAlgorithm},
		{"nOnE", unsigned("nOnE"), ErrAlgorithm},
		{"none with a signature", unsigned("none") + sig, ErrAlgorithm},
		{"no alg", signed(`{"typ":"JWT"}`), ErrAlgorithm},
		{"empty alg", signed(`{"alg":""}`), ErrAlgorithm},
		{"alg null", signed(`{"alg":null}`), ErrAlgorithm},
		{"alg a number", signed(`{"alg":256}`), ErrAlgorithm},
		{"alg a list", signed(`{"alg":["HS256"]}`), ErrAlgorithm},
		{"alg in lower case", signed(`{"alg":"hs256"}`), ErrAlgorithm},
		{"alg with a space", signed(`{"alg":"HS256 "}`), ErrAlgorithm},
		{"ALG", signed(`{"ALG":"HS256"}`), ErrAlgorithm},
		{"unknown alg", signed(`{"alg":"HS1024"}`), ErrAlgorithm},
		{"HS384", sign("HS384", secret, `{"alg":"HS384"}`, claims), ErrAlgorithm},
		{"HS512", sign("HS512", secret, `{"alg":"HS512"}`, claims), ErrAlgorithm},
		{"RS256 to secrets", sign("RS256", private().rsa, `{"alg":"RS256"}`, claims), ErrAlgorithm},
		{"ES256 to secrets", sign("ES256", private().p256, `{"alg":"ES256"}`, claims), ErrAlgorithm},
		{"HS384 called HS256", sign("HS384", secret, h, claims), ErrSignature},

		{"empty secret", sign("HS256", []byte{}, h, claims), ErrSignature},
		{"another secret", sign("HS256", []byte("another secret of thirty-two byte"), h, claims), ErrSignature},
		{"signature of other claims", head + "." + b64(alice(`,"a":1`)) + "." + sig, ErrSignature},
		{"no signature", head + "." + body + ".", ErrSignature},
		{"short signature", head + "." + body + "." + sig[:40], ErrSignature},
		{"longer signature", head + "." + body + "." + sig[:len(sig)-3] + "AAAAAAA", ErrSignature},

		{"crit", signed(`{"alg":"HS256","crit":["exp"],"exp":1}`), ErrCritical},
		{"crit b64", signed(`{"alg":"HS256","crit":["b64"],"b64":false}`), ErrCritical},
		{"empty crit", signed(`{"alg":"HS256","crit":[]}`), ErrCritical},
		{"crit null", signed(`{"alg":"HS256","crit":null}`), ErrCritical},
		{"alg twice", signed(`{"alg":"none","alg":"HS256"}`), ErrHeader},
		{"kid twice", signed(`{"alg":"HS256","kid":"a","kid":"b"}`), ErrHeader},
		{"alg twice by escape", signed(`{"alg":"none","\u0061lg":"HS256"}`), ErrHeader},
		{"deep name twice", signed(`{"alg":"HS256","x":{"y":1,"y":2}}`), ErrHeader},
		{"invalid UTF-8 in the header", signed("{\"alg\":\"HS256\",\"x\":\"\xff\"}"), ErrHeader},
		{"kid a number", signed(`{"alg":"HS256","kid":1}`), ErrHeader},
		{"kid null", signed(`{"alg":"HS256","kid":null}`), ErrHeader},
		{"kid a list", signed(`{"alg":"HS256","kid":["a"]}`), ErrHeader},
		{"kid says nothing to secrets", signed(`{"alg":"HS256","kid":"../../dev/null"}`), nil},
		{"typ says nothing", signed(`{"alg":"HS256","typ":5}`), nil},
		{"keys in the header are not looked at", signed(`{"alg":"HS256","jku":"http://127.0.0.1:1/","jwk":{"kty":"oct","k":""}}`), nil},

		{"header a list", b64(`[]`) + "." + body + "." + sig, ErrMalformed},
		{"header a string", b64(`"HS256"`) + "." + body + "." + sig, ErrMalformed},
		{"header null", signed(`null`), ErrAlgorithm},
		{"header with something behind", signed(h + `{}`), ErrMalformed},
		{"header not JSON", signed(`{alg:HS256}`), ErrMalformed},
		{"a number that overflows", signed(`{"alg":"HS256","x":1e400}`), ErrMalformed},
		{"claims not JSON", hs256(`{sub:alice}`), ErrMalformed},
		{"claims with something behind", hs256(claims + `{}`), ErrMalformed},
		{"empty parts", "..", ErrMalformed},
		{"empty header", "." + body + "." + sig, ErrMalformed},
		{"empty claims", head + ".." + sig, ErrMalformed},

		{"padding", good + "=", ErrMalformed},
		{"padding in the middle", head + "=." + body + "." + sig, ErrMalformed},
		{"LF", good + "\n", ErrMalformed},
		{"CRLF inside", head + "." + body[:4] + "\r\n" + body[4:] + "." + sig, ErrMalformed},
		{"LF inside the signature", head + "." + body + "." + sig[:4] + "\n" + sig[4:], ErrMalformed},
		{"space inside", head + ". " + body + "." + sig, ErrMalformed},
		{"NUL", good + "\x00", ErrMalformed},
		{"standard base64", respelled(h, claims, func(s string) string { return "+" + s[1:] }), ErrMalformed},
		{"the signature's last character", head + "." + body + "." + otherSpelling(sig), ErrMalformed},
		{"the header's last character, signed so", respelled(`{"alg":"HS256" }`, claims, otherSpelling), ErrMalformed},
		{"LF in the header, signed so", respelled(h, claims, func(s string) string { return s[:8] + "\n" + s[8:] }), ErrMalformed},
		{"the header padded, signed so", respelled(`{"alg":"HS256" }`, claims, func(s string) string { return s + "==" }), ErrMalformed},

		{"8193 bytes", strings.Repeat("a", 8193), ErrTooLong},
		{"8193 bytes, signed", pad(8193), ErrTooLong},
		{"8192 bytes, signed", pad(8192), nil},
		{"deep nesting", sign("HS256", secret, h, strings.Repeat("[", 5000)+strings.Repeat("]", 500)), ErrMalformed},
		{"four parts", good + ".", ErrUnknownServiceKey},
		{"two parts", head + "." + body, ErrUnknownServiceKey},
		{"JWE", good + ".a.b", ErrUnknownServiceKey},
	}
	a := open(t, Config{Secrets: [][]byte{secret}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ask(a, tt.text)
			wantReason(t, err, tt.want)
		})
	}
}

// respelled makes a JWT whose header is spelled otherwise, and signed like that.
func respelled(header, claims string, spell func(string) string) string {
	text := spell(b64(header)) + "." + b64(claims)
	return text + "." + b64(string(must(jwt.SigningMethodHS256.Sign(text, secret))))
}

// otherSpelling changes the bits of the last character that no byte holds.
func otherSpelling(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return s[:len(s)-1] + string(alphabet[strings.IndexByte(alphabet, s[len(s)-1])^1])
}

// pad makes a good JWT of n bytes.
func pad(n int) string {
	for fill := n / 2; ; fill++ {
		// The claims' and the header's lengths together reach any length.
		for _, h := range []string{`{"alg":"HS256"}`, `{"alg":"HS256" }`, `{"alg":"HS256"  }`} {
			s := sign("HS256", secret, h, alice(`,"x":"`+strings.Repeat("x", fill)+`"`))
			if len(s) == n {
				return s
			}
		}
	}
}

// TestPublicKeyAlgorithms holds each key to the algorithms of its own type, and to the one
// that the configuration names.
func TestPublicKeyAlgorithms(t *testing.T) {
	k := private()
	signers := map[string]any{
		"HS256": secret, "HS384": secret, "HS512": secret,
		"RS256": k.rsa, "RS384": k.rsa, "RS512": k.rsa, "PS256": k.rsa, "PS384": k.rsa, "PS512": k.rsa,
		"ES256": k.p256, "ES384": k.p384, "ES512": k.p521, "EdDSA": k.ed,
	}
	tests := []struct {
		name string
		pem  []byte
		only string
		want string // the algorithms accepted
	}{
		{"RSA", pkix(k.rsa.Public()), "", "RS256 RS384 RS512 PS256 PS384 PS512"},
		{"RSA, PKCS #1", pemOf("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&k.rsa.PublicKey)), "", "RS256 RS384 RS512 PS256 PS384 PS512"},
		{"RSA, PS256 only", pkix(k.rsa.Public()), "PS256", "PS256"},
		{"P-256", pkix(k.p256.Public()), "", "ES256"},
		{"P-384", pkix(k.p384.Public()), "", "ES384"},
		{"P-521", pkix(k.p521.Public()), "ES512", "ES512"},
		{"Ed25519", pkix(k.ed.Public()), "", "EdDSA"},
		{"two keys", append(pkix(k.ed.Public()), pkix(k.p256.Public())...), "", "EdDSA ES256"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := open(t, Config{PublicKeys: tt.pem, Algorithm: tt.only})
			for alg, key := range signers {
				_, err := ask(a, sign(alg, key, `{"alg":"`+alg+`"}`, alice("")))
				if strings.Contains(" "+tt.want+" ", " "+alg+" ") {
					wantReason(t, err, nil)
				} else {
					wantReason(t, err, ErrAlgorithm)
				}
			}
			// Whatever of the public key a forger takes for a secret.
			for _, stolen := range [][]byte{tt.pem, bytes.TrimSpace(tt.pem), nil} {
				for _, alg := range secretAlgorithms {
					_, err := ask(a, sign(alg, stolen, `{"alg":"`+alg+`"}`, alice("")))
					wantReason(t, err, ErrAlgorithm)
				}
			}
		})
	}
}

func TestForeignPublicKey(t *testing.T) {
	k := private()
	a := open(t, Config{PublicKeys: append(pkix(k.rsa.Public()), pkix(k.p256.Public())...)})
	_, err := ask(a, sign("RS256", k.rsa2, `{"alg":"RS256"}`, alice("")))
	wantReason(t, err, ErrSignature)
	_, err = ask(a, sign("ES256", k.other, `{"alg":"ES256"}`, alice("")))
	wantReason(t, err, ErrSignature)
	_, err = ask(a, sign("ES256", k.p256, `{"alg":"ES256"}`, alice("")))
	wantReason(t, err, nil)
}

// TestZeroSignature is CVE-2022-21449: r and s of zero.
func TestZeroSignature(t *testing.T) {
	a := open(t, Config{PublicKeys: pkix(private().p256.Public())})
	_, err := ask(a, b64(`{"alg":"ES256"}`)+"."+b64(alice(""))+"."+b64(string(make([]byte, 64))))
	wantReason(t, err, ErrSignature)
}

func TestSecretRotation(t *testing.T) {
	newer := []byte("fedcba9876543210fedcba9876543210")
	byOld := hs256(alice(""))
	byNew := sign("HS256", newer, `{"alg":"HS256"}`, alice(""))

	for _, step := range []struct {
		name     string
		secrets  [][]byte
		old, new *Reason
	}{
		{"before", [][]byte{secret}, nil, ErrSignature},
		{"both", [][]byte{secret, newer}, nil, nil},
		{"both, moved", [][]byte{newer, secret}, nil, nil},
		{"after", [][]byte{newer}, ErrSignature, nil},
	} {
		t.Run(step.name, func(t *testing.T) {
			a := open(t, Config{Secrets: step.secrets})
			_, err := ask(a, byOld)
			wantReason(t, err, step.old)
			_, err = ask(a, byNew)
			wantReason(t, err, step.new)
		})
	}
}

// TestSecretIsCopied: what the caller does with its bytes later changes nothing.
func TestSecretIsCopied(t *testing.T) {
	mine := bytes.Clone(secret)
	a := open(t, Config{Secrets: [][]byte{mine}})
	clear(mine)
	id, err := ask(a, hs256(alice("")))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Identity{Kind: User, User: token.User("alice")}, id); diff != "" {
		t.Error(diff)
	}
}

// TestHitsKeepTheTime moves the clock under a JWT that the cache holds.
func TestHitsKeepTheTime(t *testing.T) {
	clock := now
	a := open(t, Config{
		Secrets: [][]byte{secret}, Leeway: DefaultLeeway,
		Clock: func() time.Time { return clock },
	})
	text := hs256(`{"sub":"alice","nbf":` + at(0) + `,"exp":` + at(20*time.Second) + `}`)
	for _, step := range []struct {
		offset time.Duration
		want   *Reason
	}{
		{0, nil},
		{20 * time.Second, nil},
		{50*time.Second - 1, nil},
		{50 * time.Second, ErrExpired},
		{0, nil},
		{-30 * time.Second, nil},
		{-30*time.Second - 1, ErrNotYet},
		{0, nil},
	} {
		clock = now.Add(step.offset)
		_, err := ask(a, text)
		wantReason(t, err, step.want)
	}
}
