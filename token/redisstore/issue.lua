-- Makes the record of a new token, or finds the one that an earlier send of the same
-- call has made.
-- KEYS[1]  the token's record
-- KEYS[2]  the user's rate; left out where the call is not limited
-- ARGV[1]  life, seconds        ARGV[2]  life and retention, as they stand in a record
-- ARGV[3]  µs between two tokens in the long run        ARGV[4]  how many at once
-- returns  {'issued', now, ''}       made; now is its issued_at
--          {'issued', now, record}   its earlier send had made it
--          {'limited', now, us}      us: µs until a call like this one passes
--          {'taken', now, ''}        the key is another's: a fault
-- Reads with GET, so that the first write is refused while Redis is full; GETEX comes
-- only before a refusal.

local us = clock()
local now = floor(us / 1000)
local rec = redis.call('GET', KEYS[1])
if rec then
  return {'issued', now, rec}
end
local tat
if KEYS[2] then
  local interval, burst = tonumber(ARGV[3]), tonumber(ARGV[4])
  tat = math.max(tonumber(redis.call('GET', KEYS[2]) or 0), us) + interval
  local over = tat - us - burst * interval
  if over > 0 then
    redis.call('GETEX', KEYS[2])
    return {'limited', now, int(math.ceil(over))}
  end
end
rec = char(1, ISSUED) .. bytes48(now) .. ARGV[2]
if not redis.call('SET', KEYS[1], rec, 'NX', 'EX', ARGV[1] + 1) then
  return {'taken', now, ''}
end
if tat then
  redis.call('SET', KEYS[2], int(tat), 'PX', int(math.ceil((tat - us) / 1000)))
end
return {'issued', now, ''}
