-- Makes the records of new tokens, all or none, or finds those that an earlier send of
-- the same call has made.
-- KEYS[1 … n]  the tokens' records
-- KEYS[n + 1]  the user's rate; left out where the call is not limited
-- ARGV[1]  n                   ARGV[2]  life, seconds
-- ARGV[3]  state, as a record's second byte        ARGV[4]  life and retention, as in one
-- ARGV[5]  µs between two tokens in the long run   ARGV[6]  how many at once
-- returns  {'issued', now, ''}       made; now is their issued_at
--          {'issued', now, record}   an earlier send had made them; the first's record
--          {'limited', now, us}      us: µs until a call like this one passes
--          {'taken', now, ''}        a key is another's: a fault
-- Reads with GET, so that the first write is refused while Redis is full; GETEX comes
-- only before a refusal.

local us = clock()
local now = floor(us / 1000)
local n = tonumber(ARGV[1])
local rec = redis.call('GET', KEYS[1])
if rec then
  return {'issued', now, rec}
end
local tat
if KEYS[n + 1] then
  local interval, burst = tonumber(ARGV[5]), tonumber(ARGV[6])
  tat = math.max(tonumber(redis.call('GET', KEYS[n + 1]) or 0), us) + n * interval
  local over = tat - us - burst * interval
  if over > 0 then
    redis.call('GETEX', KEYS[n + 1])
    return {'limited', now, int(math.ceil(over))}
  end
end
rec = '\1' .. ARGV[3] .. bytes48(now) .. ARGV[4]
for i = 1, n do
  if not redis.call('SET', KEYS[i], rec, 'NX', 'EX', ARGV[2] + 1) then
    return {'taken', now, ''}
  end
end
if tat then
  redis.call('SET', KEYS[n + 1], int(tat), 'PX', int(math.ceil((tat - us) / 1000)))
end
return {'issued', now, ''}
