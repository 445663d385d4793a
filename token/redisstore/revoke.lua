-- Makes a token unusable, unless it is used, completed, committed or past its life already.
-- KEYS[1]  the token's record
-- ARGV[1]  expiry, ms          ARGV[2]  expiry + retention, ms
--          both '' where only the ID is known: then the record alone tells
-- returns  revoked | used | completed record
--          claimed record      committed, and so it stays
--          stale | expired | lost, with the record if there is one
--          gone                only the ID is known, and there is no record
--          delete record       a token of delete mode, which cannot be revoked
--          unknown record      a state of a later release: a fault

if state == USED then
  return 'used ' .. stamp .. rec
end
if state == COMPLETED then
  return 'completed ' .. stamp .. sub(rec, 1, 56)
end
if state == REVOKED then
  -- Written again, changing nothing, so that WAIT has something to wait for.
  write(KEYS[1], rec, ends)
  return 'revoked ' .. stamp .. rec
end
if rec and state ~= ISSUED and state ~= CLAIMED then
  return 'unknown ' .. stamp .. rec
end
if rec and byte(rec, 2) >= DELETE then
  return 'delete ' .. stamp .. rec
end
if state == CLAIMED and byte(rec, 2) >= COMMITTED then
  return 'claimed ' .. stamp .. rec
end
local expires, last = tonumber(ARGV[1]), tonumber(ARGV[2])
if not expires then
  if not rec then
    return 'gone ' .. stamp
  end
  expires, last = signed(rec)
end
local refusal = state ~= CLAIMED and by_time(rec, now, expires, last)
if refusal then
  return refusal .. stamp .. (rec or '')
end
-- The attempt of a claim that ends by this stays: it was not released.
local attempt = state == CLAIMED and sub(rec, 33, 44) or NONE
ends = math.max(ends or 0, last)
rec = '\1\3' .. sub(rec, 3, 16) .. bytes48(ends) .. stamp .. bytes32(fence(rec)) .. attempt
write(KEYS[1], rec, ends)
if state == CLAIMED then
  tell(KEYS[1])
end
return 'revoked ' .. stamp .. rec
