package auth

import "strings"

// maxBearer bounds the work that an unknown caller can ask for.
const maxBearer = 8192

// bearer returns what stands behind Bearer in the values of the Authorization header. The
// scheme's case does not matter, and one or more spaces follow it (RFC 9110, section 11.4).
func bearer(authorization []string) (string, error) {
	if len(authorization) == 0 {
		return "", refuse(ErrNoHeader)
	}
	if len(authorization) > 1 {
		return "", refuse(ErrTwoHeaders)
	}
	scheme, text, _ := strings.Cut(authorization[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", refuse(ErrNotBearer)
	}
	text = strings.Trim(text, " ")
	if text == "" {
		return "", refuse(ErrNoBearer)
	}
	if len(text) > maxBearer {
		return "", refuse(ErrTooLong)
	}
	return text, nil
}
