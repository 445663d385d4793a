-- Makes a token unusable, unless it is used or past its life already.
-- KEYS[1]  the token's record
-- ARGV[1]  expiry, ms          ARGV[2]  expiry + retention, ms
--          both '' where only the ID is known: then the record alone tells
-- returns  revoked | used record
--          stale | expired | lost, with the record if there is one
--          gone                only the ID is known, and there is no record
--          delete record       a token of delete mode, which cannot be revoked
--          unknown record      a state of a later release: a fault

if state == USED then
  return 'used ' .. stamp .. rec
end
if state == REVOKED then
  -- Written again, changing nothing, so that WAIT has something to wait for.
  write(KEYS[1], rec, ends)
  return 'revoked ' .. stamp .. rec
end
if rec and state ~= ISSUED then
  return 'unknown ' .. stamp .. rec
end
if rec and byte(rec, 2) >= DELETE then
  return 'delete ' .. stamp .. rec
end
local expires, last = tonumber(ARGV[1]), tonumber(ARGV[2])
if not expires then
  if not rec then
    return 'gone ' .. stamp
  end
  expires, last = signed(rec)
end
local refusal = by_time(rec, now, expires, last)
if refusal then
  return refusal .. stamp .. (rec or '')
end
rec = '\1\3' .. sub(rec, 3, 16) .. bytes48(last) .. stamp .. fence(rec) .. string.rep('\0', 12)
write(KEYS[1], rec, last)
return 'revoked ' .. stamp .. rec
