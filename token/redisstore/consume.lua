-- Consumes one token, at most once.
-- KEYS[1]  the token's record
-- ARGV[1]  hash of the attempt: every re-send of one call sends the same one
-- ARGV[2]  hash of the digest, or ''
-- ARGV[3]  expiry, ms           ARGV[4]  expiry + retention, ms
-- returns  {'consumed', now, ''}     used now
--          {'replayed', now, record} this attempt had used it
--          {'used' | 'mismatch' | 'revoked', now, record}
--          {'stale' | 'expired' | 'lost', now, ''}
--          {'unknown', now, record}  a state of a later release, or delete mode's: a fault

local now = floor(clock() / 1000)
local rec, state = read(KEYS[1], now)
local last = tonumber(ARGV[4])

if state == USED then
  if ARGV[2] ~= '' and #rec >= 56 and sub(rec, 45, 56) ~= ARGV[2] then
    return {'mismatch', now, rec}
  end
  if sub(rec, 33, 44) ~= ARGV[1] then
    return {'used', now, rec}
  end
  -- Written again, changing nothing, so that WAIT has something to wait for.
  write(KEYS[1], rec, u48(rec, 17))
  return {'replayed', now, rec}
end
if state == REVOKED then
  return {'revoked', now, rec}
end
if rec and (state ~= ISSUED or byte(rec, 2) >= DELETE) then
  return {'unknown', now, rec}
end
local refusal = by_time(rec, now, tonumber(ARGV[3]), last)
if refusal then
  return {refusal, now, ''}
end

write(KEYS[1], char(1, USED) .. sub(rec, 3, 16) .. bytes48(last) .. bytes48(now) .. fence(rec) .. ARGV[1] .. ARGV[2], last)
return {'consumed', now, ''}
