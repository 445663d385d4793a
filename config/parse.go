package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/tokend/token"
)

// The parsers below return the rule that a text breaks, as "must …". They never quote
// the text: it may be a secret in the wrong place.

func anyText(s string) (string, error) { return s, nil }

func anySecret(s string) (Secret, error) { return Secret(s), nil }

func someText(s string) (string, error) {
	if s == "" {
		return "", errors.New("must not be empty")
	}
	return s, nil
}

// orEmpty lets an empty text pass as the zero value: there is none.
func orEmpty[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(s string) (T, error) {
		if s == "" {
			var zero T
			return zero, nil
		}
		return parse(s)
	}
}

func oneOf[T ~string](ts ...T) func(string) (T, error) {
	return func(s string) (T, error) {
		if slices.Contains(ts, T(s)) {
			return T(s), nil
		}
		names := make([]string, len(ts))
		for i, t := range ts {
			names[i] = string(t)
		}
		last := len(names) - 1
		return "", fmt.Errorf("must be %s or %s", strings.Join(names[:last], ", "), names[last])
	}
}

func boolean(s string) (bool, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, errors.New("must be true or false")
	}
	return b, nil
}

func number(least, most int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, fmt.Errorf("must be a whole number from %d to %d", least, most)
		}
		return n, nil
	}
}

// duration parses what Go writes as a duration, a multiple of unit between least and
// most.
func duration(least, most, unit time.Duration) func(string) (time.Duration, error) {
	upTo := short(most)
	if most == longest {
		upTo = fmt.Sprintf("%.0fs, %d years", longest.Seconds(), longest/(365*24*time.Hour))
	}
	rule := fmt.Errorf("must be a duration with its unit (300ms, 5m, 24h), from %s to %s", short(least), upTo)
	if unit >= time.Second {
		rule = fmt.Errorf("must be a duration with its unit (90s, 5m, 24h) in whole seconds, from %s to %s", short(least), upTo)
	}
	return func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < least || d > most || d%unit != 0 {
			return 0, rule
		}
		return d, nil
	}
}

var wholeSeconds = duration(time.Second, longest, time.Second)

// short writes d without the units that are zero: 24h, not 24h0m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func address(s string) (string, error) {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", errors.New("must be HOST:PORT or :PORT, [::1]:8080 say")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", errors.New("must end in a port from 0 to 65535")
	}
	return s, nil
}

func keyPrefix(s string) (string, error) {
	ok := len(s) >= 1 && len(s) <= 32
	for _, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_', r == '-':
		default:
			ok = false
		}
	}
	if !ok {
		return "", errors.New("must be 1 to 32 of [A-Za-z0-9._-]")
	}
	return s, nil
}

// clientsOwn are headers that gateways hand on as their client sent them, or that mean
// something else already. A client that chose its own attempt would be served twice.
var clientsOwn = []string{
	"authorization", "connection", "content-length", "content-type", "cookie", "host", "idempotency-key",
	"tokend-authorization", "tokend-token", "traceparent", "tracestate", "transfer-encoding", "x-request-id",
}

func gatewayHeader(s string) (string, error) {
	for _, r := range s {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', strings.ContainsRune("!#$%&'*+-.^_`|~", r):
		default:
			return "", errors.New("must be the name of a header")
		}
	}
	if slices.Contains(clientsOwn, strings.ToLower(s)) {
		return "", errors.New("must be a header that gateways overwrite in every request, Tokend-User, Tokend-Purpose or Tokend-Attempt say, and not one that clients send")
	}
	return s, nil
}

func allowedStatus(s string) (int, error) {
	if s != "200" && s != "204" {
		return 0, errors.New("must be 204 or 200")
	}
	return strconv.Atoi(s)
}

func signingKeys(s string) ([]token.Key, error) {
	if s == "" {
		return nil, nil
	}
	return token.ParseKeys(s)
}

// jwtSecrets parts comma-separated secrets. Spaces belong to a secret.
func jwtSecrets(s string) ([]Secret, error) {
	if s == "" {
		return nil, nil
	}
	var secrets []Secret
	for part := range strings.SplitSeq(s, ",") {
		secrets = append(secrets, Secret(part))
	}
	return secrets, nil
}

// origin parses a web origin as browsers send it: they compare nothing for us, so any
// other spelling would never match.
func origin(s string) (string, error) {
	if s == "*" {
		return "", errors.New("must not be *: calls carry credentials, so name each origin")
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" ||
		s != u.Scheme+"://"+u.Host || s != strings.ToLower(s) {
		return "", errors.New("must be an origin as browsers send it, https://shop.example say: lower case, nothing behind the host and port")
	}
	if p := u.Port(); u.Scheme == "https" && p == "443" || u.Scheme == "http" && p == "80" {
		return "", errors.New("must leave its scheme's own port out, as browsers do")
	}
	return s, nil
}

func level(s string) (slog.Level, error) {
	switch s {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, errors.New("must be debug, info, warn or error")
}
