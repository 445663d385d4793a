-- Makes a token unusable, unless it is used or past its life already.
-- KEYS[1]  the token's record
-- ARGV[1]  expiry, ms          ARGV[2]  expiry + retention, ms
--          both '' where only the ID is known: then the record alone tells
-- returns  {'revoked' | 'used', now, record}
--          {'stale' | 'expired' | 'lost', now, record or ''}
--          {'gone', now, ''}         only the ID is known, and there is no record
--          {'delete', now, record}   a token of delete mode, which cannot be revoked
--          {'unknown', now, record}  a state of a later release: a fault

local now = floor(clock() / 1000)
local rec, state = read(KEYS[1], now)

if state == USED then
  return {'used', now, rec}
end
if state == REVOKED then
  write(KEYS[1], rec, u48(rec, 17))
  return {'revoked', now, rec}
end
if rec and state ~= ISSUED then
  return {'unknown', now, rec}
end
if rec and byte(rec, 2) >= DELETE then
  return {'delete', now, rec}
end
local expires, last = tonumber(ARGV[1]), tonumber(ARGV[2])
if not expires then
  if not rec then
    return {'gone', now, ''}
  end
  expires, last = signed(rec)
end
local refusal = by_time(rec, now, expires, last)
if refusal then
  return {refusal, now, rec or ''}
end
rec = char(1, REVOKED) .. sub(rec, 3, 16) .. bytes48(last) .. bytes48(now) .. fence(rec) .. string.rep('\0', 12)
write(KEYS[1], rec, last)
return {'revoked', now, rec}
