-- What every script begins with: the clock, and the record's layout, which record.go
-- describes. Numbers are big-endian; string positions count from 1.
--
-- Scripts read with GETEX, a write, so that a demoted or cut-off master answers
-- READONLY or NOREPLICAS, and never a stale refusal. Every check precedes the first
-- other write.
--
-- A script answers one string: a status, a space, the time (6 bytes, ms), and mostly the
-- record. Its caller lists the statuses.

local ISSUED, USED, REVOKED = 1, 2, 3 -- the low three bits of the state byte
local DELETE = 64 -- its seventh: a token of delete mode
local call, byte, char, sub, floor = redis.call, string.byte, string.char, string.sub, math.floor

-- The time: Unix milliseconds, and the microseconds beyond them.
local function clock()
  local t = call('TIME')
  local ms = floor(t[2] / 1000)
  return t[1] * 1000 + ms, t[2] - ms * 1000
end

-- A whole number in decimal: Lua's own conversion keeps 14 digits.
local function int(n)
  return string.format('%.0f', n)
end

local function u48(s, at)
  local a, b, c, d, e, f = byte(s, at, at + 5)
  return ((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f
end

local function u32(s, at)
  local a, b, c, d = byte(s, at, at + 3)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

local function bytes48(n)
  local high, low = floor(n / 16777216), n % 16777216
  return char(floor(high / 65536), floor(high / 256) % 256, high % 256,
    floor(low / 65536), floor(low / 256) % 256, low % 256)
end

-- The record at key and its state; nil, nil where there is none, or its stated end is
-- past. The state of a record in another version, or too short for one, is 0, which no
-- caller knows.
local function read(key, now)
  local rec = call('GETEX', key)
  if not rec then
    return nil, nil
  end
  if #rec < 16 or byte(rec, 1) ~= 1 then
    return rec, 0
  end
  if #rec >= 22 and now > u48(rec, 17) then
    return nil, nil
  end
  return rec, byte(rec, 2) % 8
end

-- The expiry that was signed into the token of rec, and that plus its retention.
local function signed(rec)
  local expires = u48(rec, 3) + u32(rec, 9) * 1000
  return expires, expires + u32(rec, 13) * 1000
end

-- The fence of rec, as it stands in one.
local function fence(rec)
  return #rec >= 32 and sub(rec, 29, 32) or '\0\0\0\0'
end

-- Writes rec, whose stated end is ends, and has Redis drop it a minute later: a clock
-- that jumps a little must not make a used token look like one never used.
local function write(key, rec, ends)
  call('SET', key, rec, 'PXAT', int(ends + 60000))
end

-- Where no record tells what became of a token, or one says that it is unused: what
-- the time says of it, or nil if it is good.
local function by_time(rec, now, expires, last)
  if now >= last then
    return 'stale '
  end
  if now >= expires then
    return 'expired '
  end
  if not rec then
    return 'lost '
  end
  return nil
end
