-- Consumes one token, at most once.
-- KEYS[1]  the token's record
-- ARGV[1]  hash of the attempt: every re-send of one call sends the same one
-- ARGV[2]  hash of the digest, or ''
-- ARGV[3]  expiry, ms           ARGV[4]  expiry + retention, ms
-- ARGV[5]  ARGV[4] as in a record                  ARGV[6]  when Redis drops a used one, ms
-- returns  consumed             used now
--          replayed record      this attempt had used it
--          used | mismatch | revoked record
--          stale | expired | lost
--          unknown record       a state of a later release, or delete mode's: a fault

local now = clock()
local stamp = bytes48(now)
local rec, state = read(KEYS[1], now)

if state == USED then
  if ARGV[2] ~= '' and #rec >= 56 and sub(rec, 45, 56) ~= ARGV[2] then
    return 'mismatch ' .. stamp .. rec
  end
  if sub(rec, 33, 44) ~= ARGV[1] then
    return 'used ' .. stamp .. rec
  end
  -- Written again, changing nothing, so that WAIT has something to wait for.
  write(KEYS[1], rec, u48(rec, 17))
  return 'replayed ' .. stamp .. rec
end
if state == REVOKED then
  return 'revoked ' .. stamp .. rec
end
if rec and (state ~= ISSUED or byte(rec, 2) >= DELETE) then
  return 'unknown ' .. stamp .. rec
end
local refusal = by_time(rec, now, tonumber(ARGV[3]), tonumber(ARGV[4]))
if refusal then
  return refusal .. stamp
end

call('SET', KEYS[1], '\1\2' .. sub(rec, 3, 16) .. ARGV[5] .. stamp .. fence(rec) .. ARGV[1] .. ARGV[2], 'PXAT', ARGV[6])
return 'consumed ' .. stamp
