package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/cobra"

	"example.com/tokend/config"
	"example.com/tokend/token"
)

func newJWT(p *program) *cobra.Command {
	c := jwtClaims{}
	var secret, secretFile string
	cmd := &cobra.Command{
		Use:   "jwt",
		Short: "Sign a JWT with a local secret, for trying out",
		Long: `Sign a JWT with a secret that serve has too, for trying out: in production the identity
provider signs them. Without --scope it is a user's, with one a service's.

The secret, the issuer, the audience, the algorithm and the claims' names are serve's own
settings (TOKEND_AUTH_JWT_SECRET …) where no flag says otherwise; of several secrets and
audiences the first.`,
		Example: `  tokend jwt --sub alice --secret-file jwt.secret
  TOKEND_TOKEN=$(tokend jwt --sub form-service --scope 'tokend.issue tokend.consume' --ttl 10m)`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if secret != "" && secretFile != "" {
				return usagef("give --secret or --secret-file, not both")
			}
			cfg, faults := config.Load(config.Sources{Flags: cmd.Flags(), Environ: jwtEnviron(p, secret, secretFile)})
			if err := faults.Err(); err != nil {
				return err
			}
			text, err := signJWT(cfg.Auth, c, time.Now())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(p.stdout, text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&secret, "secret", "", "the secret; it shows in the list of processes, --secret-file does not")
	f.StringVar(&secretFile, "secret-file", "", "file that holds the secret")
	f.StringVar(&c.subject, "sub", "", "the user, or the service's name")
	f.StringVar(&c.scope, "scope", "", "scopes, with spaces between: makes it a service's")
	f.StringVar(&c.audience, "aud", "", "the audience")
	f.StringVar(&c.issuer, "iss", "", "the issuer")
	f.DurationVar(&c.ttl, "ttl", time.Hour, "how long it is good for")
	config.RegisterOnly(f)
	return cmd
}

// jwtEnviron returns p's environment with the secret that the flags give in serve's
// place.
func jwtEnviron(p *program, secret, secretFile string) []string {
	if secret == "" && secretFile == "" {
		return p.environ
	}
	var environ []string
	for _, e := range p.environ {
		if !strings.HasPrefix(e, "TOKEND_AUTH_JWT_SECRET=") && !strings.HasPrefix(e, "TOKEND_AUTH_JWT_SECRET_FILE=") {
			environ = append(environ, e)
		}
	}
	if secret != "" {
		return append(environ, "TOKEND_AUTH_JWT_SECRET="+secret)
	}
	return append(environ, "TOKEND_AUTH_JWT_SECRET_FILE="+secretFile)
}

// jwtClaims are what a JWT is to say; issuer and audience may be empty for the
// configured ones.
type jwtClaims struct {
	subject, scope, audience, issuer string
	ttl                              time.Duration
}

// signJWT signs a JWT that a server with a accepts at the time now.
func signJWT(a config.Auth, c jwtClaims, now time.Time) (string, error) {
	if _, err := token.ParseUser(c.subject); err != nil {
		return "", usagef("--sub must be 1 to 256 bytes of valid UTF-8 without control characters")
	}
	if c.ttl <= 0 {
		return "", usagef("--ttl must be longer than nothing")
	}
	if len(a.JWTSecrets) == 0 {
		return "", usagef("there is no secret to sign with: give --secret-file, --secret, TOKEND_AUTH_JWT_SECRET or TOKEND_AUTH_JWT_SECRET_FILE")
	}
	algorithm := a.JWTAlgorithm
	if algorithm == "" {
		algorithm = "HS256"
	}
	method, ok := jwt.GetSigningMethod(algorithm).(*jwt.SigningMethodHMAC)
	if !ok {
		return "", usagef("auth.jwt_algorithm must be HS256, HS384 or HS512 for a secret")
	}
	claims := jwt.MapClaims{
		a.UserClaim: c.subject,
		"iat":       now.Unix(),
		"exp":       now.Add(c.ttl).Unix(),
	}
	if c.scope != "" {
		claims[a.ScopeClaim] = c.scope
		if name, value, ok := strings.Cut(a.ServiceClaim, "="); ok {
			claims[name] = value
		}
	}
	if c.issuer == "" {
		c.issuer = a.Issuer
	}
	if c.issuer != "" {
		claims["iss"] = c.issuer
	}
	if c.audience == "" && len(a.Audience) > 0 {
		c.audience = a.Audience[0]
	}
	if c.audience != "" {
		claims["aud"] = c.audience
	}
	secret := []byte(a.JWTSecrets[0].Reveal())
	if len(secret) < 32 {
		return "", usagef("the secret must be at least 32 bytes long: serve takes no shorter one")
	}
	text, err := jwt.NewWithClaims(method, claims).SignedString(secret)
	if err != nil {
		return "", errors.New("the JWT cannot be signed")
	}
	return text, nil
}
