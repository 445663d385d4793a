package redisstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"example.com/tokend/token"
)

// A record is what Redis holds of one token: raw bytes at fixed offsets, rewritten in
// place, numbers big-endian.
//
//	 0   1  version: 1
//	 1   1  state in the low three bits; 64 for a token of delete mode; the others
//	        are for claims
//	 2   6  issued at, ms
//	 8   4  life, seconds: issued at plus life is the signed expiry
//	12   4  retention, seconds
//	        an issued record that was never claimed ends here
//	16   6  stated end, ms: past it the record counts as absent
//	22   6  used at or revoked at, ms
//	28   4  fence: how often the token was claimed
//	32  12  hash of the attempt that was granted the token
//	        a record without a digest ends here: 44 bytes, the most that Redis
//	        keeps in one allocation with the object itself
//	44  12  hash of the digest
//
// The scripts write records; Go only reads them.
const (
	recordVersion = 1
	issuedSize    = 16
	usedSize      = 44
	digestSize    = 56
)

// The states, as they stand in a record; prelude.lua has them too.
const (
	stateIssued  = 1
	stateUsed    = 2
	stateRevoked = 3
	flagDelete   = 64
)

// keptOn is how long Redis keeps a record past its stated end; the scripts have it too.
const keptOn = time.Minute

// record is a record's contents.
type record struct {
	state     byte
	issuedAt  time.Time
	life      time.Duration
	retention time.Duration
	// Zero in an issued record:
	ends    time.Time
	at      time.Time
	attempt token.Hash
}

// expiresAt returns the expiry that was signed into the token.
func (r record) expiresAt() time.Time { return r.issuedAt.Add(r.life) }

// parseRecord reads b. A version, state or length that this release does not know is
// an error, and no guess is made.
func parseRecord(b string) (record, error) {
	if len(b) < issuedSize || b[0] != recordVersion {
		return record{}, fmt.Errorf("record of %d bytes in an unknown version", len(b))
	}
	r := record{
		state:     b[1] & 7,
		issuedAt:  millis(b[2:]),
		life:      seconds(b[8:]),
		retention: seconds(b[12:]),
	}
	switch {
	case r.state == stateIssued:
		return r, nil
	case (r.state == stateUsed || r.state == stateRevoked) && len(b) >= usedSize:
		r.ends, r.at = millis(b[16:]), millis(b[22:])
		copy(r.attempt[:], b[32:])
		return r, nil
	}
	return record{}, fmt.Errorf("record of %d bytes in the unknown state %d", len(b), r.state)
}

func millis(b string) time.Time {
	var wide [8]byte
	copy(wide[2:], b[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(wide[:]))).UTC()
}

// bytes48 returns ms as it stands in a record.
func bytes48(ms int64) []byte {
	var wide [8]byte
	binary.BigEndian.PutUint64(wide[:], uint64(ms))
	return wide[2:]
}

func seconds(b string) time.Duration {
	var wide [4]byte
	copy(wide[:], b)
	return time.Duration(binary.BigEndian.Uint32(wide[:])) * time.Second
}
