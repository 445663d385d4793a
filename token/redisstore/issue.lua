-- Makes the records of new tokens, for several calls at once that ask for the same: each
-- call's all or none. Or finds those that an earlier send of the same call has made.
-- KEYS     for each call: its tokens' records, and the user's rate where calls are limited
-- ARGV[1]  how many tokens a call is for
-- ARGV[2]  seconds until Redis drops an unused record
-- ARGV[3]  version and state       ARGV[4]  life and retention, each as in a record
-- ARGV[5]  µs between two tokens in the long run; '' where calls are not limited
-- ARGV[6]  how many at once
-- returns  for each call, in order:
--          issued              made; the time is their issued_at
--          issued record       an earlier send had made them; the first's record
--          limited us          us: in decimal, µs until a call like this one passes
--          taken record        a key is another's: a fault
-- The first write is a SET, so that it is refused while Redis is full; GETEX comes only
-- where all were refused. What an earlier send has made is written again, changing nothing, so
-- that WAIT has something to wait for.

local n, limited = tonumber(ARGV[1]), ARGV[5] ~= ''
local made = ARGV[3] .. stamp .. ARGV[4]
local wrote, refused

local function made_before(key, rec)
  call('SET', key, rec, 'KEEPTTL')
  wrote = true
  return 'issued ' .. stamp .. rec
end

-- Answers the call whose keys stand behind KEYS[before].
local function answer(before)
  local rate, us, tat = KEYS[before + n + 1]
  if limited then
    us = time[1] * 1000000 + time[2]
    tat = math.max(tonumber(call('GET', rate) or 0), us) + n * ARGV[5]
    local over = tat - us - ARGV[6] * ARGV[5]
    if over > 0 then
      local rec = call('GET', KEYS[before + 1])
      if rec then
        return made_before(KEYS[before + 1], rec)
      end
      refused = rate
      return 'limited ' .. stamp .. string.format('%.0f', math.ceil(over))
    end
  end
  for i = before + 1, before + n do
    if not call('SET', KEYS[i], made, 'NX', 'EX', ARGV[2]) then
      if i == before + 1 then -- an earlier send has made it, and with it all
        return made_before(KEYS[i], call('GET', KEYS[i]))
      end
      return 'taken ' .. stamp .. call('GET', KEYS[i])
    end
    wrote = true
  end
  if limited then
    local left = math.max(1, math.ceil((tat - us) / 1000))
    call('SET', rate, string.format('%.0f', tat), 'PX', string.format('%.0f', left))
  end
  return 'issued ' .. stamp
end

local answers, each = {}, limited and n + 1 or n
for before = 0, #KEYS - each, each do
  answers[#answers + 1] = answer(before)
end
if refused and not wrote then
  call('GETEX', refused)
end
return answers
