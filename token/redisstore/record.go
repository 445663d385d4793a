package redisstore

import (
	"encoding/binary"
	"fmt"
	"time"

	"example.com/tokend/token"
)

// A record is what Redis holds of one token or key: raw bytes at fixed offsets, rewritten
// in place, numbers big-endian.
//
//	 0   1  version: 1
//	 1   1  state in the low three bits; 8 where a claim, or the consume, took over;
//	        the two bits of 48 of a claimed one: how it is committed; 64 for a token of
//	        delete mode
//	 2   6  issued at, ms; of a key, when it was first claimed
//	 8   4  life, seconds: issued at plus life is the signed expiry; 0 for a key
//	12   4  retention, seconds
//	        an issued record that was never claimed ends here
//	16   6  stated end, ms: past it the record counts as absent
//	22   6  used, completed, revoked or released at, ms; of a claimed one, the lease's end
//	28   4  fence: how often it was claimed, a takeover by a consume included
//	32  12  hash of the attempt that was granted it; of an issued one, of the claim that
//	        was released; of a revoked one, of the claim that ended by that, or zeros
//	        a record without a digest ends here: 44 bytes, the most that Redis
//	        keeps in one allocation with the object itself
//	44  12  hash of the digest; zeros in a completed one without
//	56      a completed one's result, as result.go has it; nothing where none was given
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
	stateIssued    = 1
	stateUsed      = 2
	stateRevoked   = 3
	stateClaimed   = 4
	stateCompleted = 5
	flagTakeover   = 8
	flagDelete     = 64
)

// How a claim is committed, as it stands in a record; claims.lua has it too.
const (
	notCommitted = 0
	commitBits   = 48
)

// keptOn is how long Redis keeps a record past its stated end; the scripts have it too.
const keptOn = time.Minute

// record is a record's contents.
type record struct {
	state     byte
	takeover  bool
	commit    byte // notCommitted, or how it is
	issuedAt  time.Time
	life      time.Duration
	retention time.Duration
	// Zero in an issued record that was never claimed:
	ends    time.Time
	at      time.Time
	fence   uint32
	attempt token.Hash
	result  string
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
		takeover:  b[1]&flagTakeover != 0,
		commit:    b[1] & commitBits,
		issuedAt:  millis(b[2:]),
		life:      seconds(b[8:]),
		retention: seconds(b[12:]),
	}
	least := usedSize
	switch {
	case r.state == stateIssued && len(b) == issuedSize:
		return r, nil
	case r.state < stateIssued || r.state > stateCompleted:
		least = len(b) + 1
	case r.state == stateCompleted:
		least = digestSize
	}
	if len(b) < least {
		return record{}, fmt.Errorf("record of %d bytes in the unknown state %d", len(b), r.state)
	}
	r.ends, r.at = millis(b[16:]), millis(b[22:])
	r.fence = number32(b[28:])
	copy(r.attempt[:], b[32:])
	if r.state == stateCompleted {
		r.result = b[digestSize:]
	}
	return r, nil
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

func number32(b string) uint32 {
	var wide [4]byte
	copy(wide[:], b)
	return binary.BigEndian.Uint32(wide[:])
}

func seconds(b string) time.Duration { return time.Duration(number32(b)) * time.Second }
