-- Consumes one token, at most once. What was claimed before is consume_claimed.lua's, which
-- comes behind.
-- KEYS[1]  the token's record
-- ARGV[1]  hash of the attempt: every re-send of one call sends the same one
-- ARGV[2]  hash of the digest, or ''
-- ARGV[3]  expiry, ms           ARGV[4]  expiry + retention, ms
-- ARGV[5]  ARGV[4] as in a record                  ARGV[6]  when Redis drops a used one, ms
-- returns  consumed             used now
--          consumed record      the same, of a token that was claimed before
--          replayed record      this attempt had used it
--          used record          used by another, or completed
--          progress record      claimed, and the lease is running
--          unfinished record    claimed and committed, and the lease is over
--          mismatch | revoked record
--          stale | expired | lost
--          unknown record       a state of a later release, or delete mode's: a fault

if state == ISSUED and not ends and byte(rec, 2) < DELETE and now < tonumber(ARGV[3]) then
  rec = '\1\2' .. sub(rec, 3, 16) .. ARGV[5] .. stamp .. '\0\0\0\0' .. ARGV[1] .. ARGV[2]
  call('SET', KEYS[1], rec, 'PXAT', ARGV[6])
  return 'consumed ' .. stamp
end
if (state == USED or state == CLAIMED or state == COMPLETED) and ARGV[2] ~= '' and #rec >= 56 then
  local digest = sub(rec, 45, 56)
  if digest ~= ARGV[2] and digest ~= NONE then
    return 'mismatch ' .. stamp .. sub(rec, 1, 56)
  end
end
if state == USED then
  if sub(rec, 33, 44) ~= ARGV[1] then
    return 'used ' .. stamp .. rec
  end
  -- Written again, changing nothing, so that WAIT has something to wait for.
  call('SET', KEYS[1], rec, 'PXAT', string.format('%.0f', ends + 60000))
  return 'replayed ' .. stamp .. rec
end
if state == COMPLETED then
  return 'used ' .. stamp .. sub(rec, 1, 56)
end
if state == REVOKED then
  return 'revoked ' .. stamp .. rec
end
if rec and (state ~= ISSUED and state ~= CLAIMED or byte(rec, 2) >= DELETE) then
  return 'unknown ' .. stamp .. rec
end
if state ~= CLAIMED then
  if now >= tonumber(ARGV[4]) then
    return 'stale ' .. stamp
  end
  if now >= tonumber(ARGV[3]) then
    return 'expired ' .. stamp
  end
  if not rec then
    return 'lost ' .. stamp
  end
end
