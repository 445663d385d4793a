-- For scripts that read numbers from a record, or write one.

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

-- The expiry that was signed into the token of rec, and that plus its retention.
local function signed(rec)
  local expires = u48(rec, 3) + u32(rec, 9) * 1000
  return expires, expires + u32(rec, 13) * 1000
end

local function bytes32(n)
  return char(floor(n / 16777216), floor(n / 65536) % 256, floor(n / 256) % 256, n % 256)
end

-- The fence of rec.
local function fence(rec)
  return #rec >= 32 and u32(rec, 29) or 0
end

-- Tells those who wait for it that the claim of key is over. Who may not publish loses
-- nothing but time: they ask by themselves, too.
local function tell(key)
  redis.pcall('PUBLISH', key, '')
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
