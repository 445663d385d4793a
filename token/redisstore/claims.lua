-- What the scripts of claims have in common, behind functions.lua.

-- How a claim is committed, as it stands in the state byte. The reply of a claim that
-- commits by itself may have been lost, and is told again; who commits later has had it.
local BY_CLAIM, LATER, RESOLVED = 16, 32, 48

-- 0 where rec, which is claimed, is not committed, or how it is.
local function committed(rec)
  local b = byte(rec, 2)
  return b - b % 16
end

-- The hash of rec's digest, or ''.
local function digest(rec)
  local d = sub(rec, 45, 56)
  return d ~= NONE and d or ''
end

-- When what is remembered anew now is forgotten.
local function remembered(rec)
  return now + u32(rec, 13) * 1000
end

-- Writes rec in another state, until ends at least, with another time, fence, and what
-- stands behind that; and returns it.
local function rewrite(rec, state, ends, at, number, rest)
  local _, last = signed(rec)
  ends = math.max(ends, last)
  rec = '\1' .. char(state) .. sub(rec, 3, 16) .. bytes48(ends) .. bytes48(at) .. bytes32(number) .. rest
  write(KEYS[1], rec, ends)
  return rec
end
