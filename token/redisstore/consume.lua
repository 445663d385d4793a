-- Consumes tokens, each at most once; this is the inside of answer, of several.lua. What was
-- claimed before is consume_claimed.lua's, which comes behind.
-- KEYS     the tokens' records
-- ARGV     for each token:
--   + 1    hash of the attempt, and that of the digest if there is one: every re-send of one
--          call sends the same ones
--   + 2    expiry, ms            + 3  expiry + retention, as in a record
--   + 4    when Redis drops a used one, ms
-- returns  for each token, in order:
--          consumed             used now
--          consumed record      the same, of a token that was claimed before
--          replayed record      this attempt had used it
--          used record          used by another, or completed
--          progress record      claimed, and the lease is running
--          unfinished record    claimed and committed, and the lease is over
--          mismatch | revoked record
--          stale | expired | lost
--          unknown record       a state of a later release, or delete mode's: a fault

if state == ISSUED and not ends and byte(rec, 2) < DELETE and now < tonumber(ARGV[at + 2]) then
  put(key, '\1\2' .. sub(rec, 3, 16) .. ARGV[at + 3] .. stamp .. '\0\0\0\0' .. ARGV[at + 1], ARGV[at + 4])
  return 'consumed ' .. stamp
end
local attempt, digest = sub(ARGV[at + 1], 1, 12), sub(ARGV[at + 1], 13)
if (state == USED or state == CLAIMED or state == COMPLETED) and digest ~= '' and #rec >= 56 then
  local kept = sub(rec, 45, 56)
  if kept ~= digest and kept ~= NONE then
    return 'mismatch ' .. stamp .. sub(rec, 1, 56)
  end
end
if state == USED then
  if sub(rec, 33, 44) ~= attempt then
    return 'used ' .. stamp .. rec
  end
  -- Written again, changing nothing, so that WAIT has something to wait for.
  put(key, rec, string.format('%.0f', ends + 60000))
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
local last = tonumber(ARGV[at + 4]) - 60000
if state ~= CLAIMED then
  if not rec then
    call('GETEX', key) -- what is not a record at all is a fault; MGET says nothing of it
  end
  if now >= last then
    return 'stale ' .. stamp
  end
  if now >= tonumber(ARGV[at + 2]) then
    return 'expired ' .. stamp
  end
  if not rec then
    return 'lost ' .. stamp
  end
end
