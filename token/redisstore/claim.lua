-- Claims a token or key for the length of a lease.
-- KEYS[1]  the record
-- ARGV[1]  hash of the attempt          ARGV[2]  hash of the digest, or ''
-- ARGV[3]  expiry, ms                   ARGV[4]  expiry + retention, ms
--          both '' for a key
-- ARGV[5]  a key's retention, as in a record; '' for a token
-- ARGV[6]  lease, ms
-- ARGV[7]  '1' commits in the same step ARGV[8]  '1' claims what is unfinished, too
-- returns  claimed record      claimed now
--          replayed record     this attempt had claimed it
--          completed record    with its result
--          progress record     claimed by another, and the lease is running
--          unfinished record   committed, and the lease is over
--          used | mismatch | revoked record
--          stale | expired | lost
--          unknown record      a state of a later release, or delete mode's: a fault

if state == USED or state == CLAIMED or state == COMPLETED then
  local kept = digest(rec)
  if ARGV[2] ~= '' and kept ~= '' and kept ~= ARGV[2] then
    return 'mismatch ' .. stamp .. sub(rec, 1, 56)
  end
end
if state == COMPLETED then
  return 'completed ' .. stamp .. rec
end
if state == USED then
  return 'used ' .. stamp .. rec
end
if state == REVOKED then
  return 'revoked ' .. stamp .. rec
end
if rec and (state ~= ISSUED and state ~= CLAIMED or byte(rec, 2) >= DELETE) then
  return 'unknown ' .. stamp .. rec
end

local of_key = ARGV[3] == ''
local status, number, over, hash = 'claimed ', 1, now + tonumber(ARGV[6]), ARGV[2]
local how, takeover = ARGV[7] == '1' and BY_CLAIM or 0, 0
if state == CLAIMED then
  local before, running = committed(rec), now < u48(rec, 23)
  number, hash = fence(rec), hash ~= '' and hash or digest(rec)
  if sub(rec, 33, 44) == ARGV[1] and (before == 0 or running and before ~= LATER) then
    -- Written again even where it changes nothing, so that WAIT has something to wait for.
    status, how, takeover = 'replayed ', math.max(how, before), byte(rec, 2) % 16 - CLAIMED
    over = running and u48(rec, 23) or over
  elseif running then
    return 'progress ' .. stamp .. rec
  elseif before ~= 0 and ARGV[8] ~= '1' then
    return 'unfinished ' .. stamp .. rec
  else
    number, how, takeover = number + 1, before ~= 0 and RESOLVED or how, TAKEOVER
  end
else
  local refusal = not of_key and by_time(rec, now, tonumber(ARGV[3]), tonumber(ARGV[4]))
  if refusal then
    return refusal .. stamp
  end
  number = rec and fence(rec) + 1 or 1
end

if of_key then -- its life, which a token's never is, is 0
  rec = '\1\4' .. (rec and sub(rec, 3, 8) or stamp) .. '\0\0\0\0' .. ARGV[5]
end
local until_then = math.max(ends or 0, over)
if of_key or takeover ~= 0 then
  until_then = math.max(until_then, remembered(rec))
end
return status .. stamp .. rewrite(rec, CLAIMED + takeover + how, until_then, over, number, ARGV[1] .. hash)
