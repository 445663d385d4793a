-- What every script begins with: the names that it uses, and the time.
--
-- Redis runs a script's whole text for each call, and makes each of its functions anew:
-- that is what a script costs most. So what every call needs stands here, in getex.lua and in
-- read.lua as plain statements, and functions, in functions.lua, are for scripts that must
-- have them.
--
-- Every check precedes the first write but GETEX. A script answers one string: a status, a
-- space, the time (stamp), and mostly the record. Its caller lists the statuses.
-- Numbers are big-endian; string positions count from 1; record.go describes the record.

local ISSUED, USED, REVOKED, CLAIMED, COMPLETED = 1, 2, 3, 4, 5 -- the low three bits of the state byte
local TAKEOVER = 8 -- its fourth: a claim whose lease had ended was taken over
local COMMITTED = 16 -- a claimed record's, from here up: it is committed
local DELETE = 64 -- its seventh: a token of delete mode
local NONE = '\0\0\0\0\0\0\0\0\0\0\0\0' -- where there is no hash
local call, byte, char, sub, floor = redis.call, string.byte, string.char, string.sub, math.floor

-- The time, Unix milliseconds, and as it stands in a record.
local time = call('TIME')
local now = time[1] * 1000 + floor(time[2] / 1000)
local high, low = floor(now / 16777216), now % 16777216
local stamp = char(floor(high / 65536), floor(high / 256) % 256, high % 256,
  floor(low / 65536), floor(low / 256) % 256, low % 256)
