-- Makes the records of new tokens, all or none, or finds those that an earlier send of
-- the same call has made.
-- KEYS[1 … n]  the tokens' records
-- KEYS[n + 1]  the user's rate; left out where the call is not limited
-- ARGV[1]  n                   ARGV[2]  seconds until Redis drops an unused record
-- ARGV[3]  state, as a record's second byte        ARGV[4]  life and retention, as in one
-- ARGV[5]  µs between two tokens in the long run   ARGV[6]  how many at once
-- returns  issued              made; the time is their issued_at
--          issued record       an earlier send had made them; the first's record
--          limited us          us: in decimal, µs until a call like this one passes
--          taken record        a key is another's: a fault
-- The first write is a SET, so that it is refused while Redis is full; GETEX comes only
-- before a refusal.

local n = tonumber(ARGV[1])
local us, tat
if KEYS[n + 1] then
  us = time[1] * 1000000 + time[2]
  tat = math.max(tonumber(call('GET', KEYS[n + 1]) or 0), us) + n * ARGV[5]
  local over = tat - us - ARGV[6] * ARGV[5]
  if over > 0 then
    local rec = call('GET', KEYS[1])
    if rec then
      return 'issued ' .. stamp .. rec
    end
    call('GETEX', KEYS[n + 1])
    return 'limited ' .. stamp .. string.format('%.0f', math.ceil(over))
  end
end
local rec = '\1' .. ARGV[3] .. stamp .. ARGV[4]
for i = 1, n do
  if not call('SET', KEYS[i], rec, 'NX', 'EX', ARGV[2]) then
    -- An earlier send has made the first, and with it all.
    return (i == 1 and 'issued ' or 'taken ') .. stamp .. call('GET', KEYS[i])
  end
end
if tat then
  local left = math.max(1, math.ceil((tat - us) / 1000))
  call('SET', KEYS[n + 1], string.format('%.0f', tat), 'PX', string.format('%.0f', left))
end
return 'issued ' .. stamp
