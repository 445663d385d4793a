-- Makes the records of new tokens, for several calls at once: each call's all or none. Or
-- finds those that an earlier send of the same call has made.
-- KEYS     for each call: its tokens' records, and the user's rate where it is limited
-- ARGV     for each call:
--   + 1    how many tokens       + 2  seconds until Redis drops an unused record
--   + 3    version and state     + 4  life and retention, each as in a record
--   + 5    µs between two tokens in the long run; '' where the call is not limited
--   + 6    how many at once
-- returns  for each call, in order:
--          issued              made; the time is their issued_at
--          issued record       an earlier send had made them; the first's record
--          limited us          us: in decimal, µs until a call like this one passes
--          taken record        a key is another's: a fault
-- The first write is a SET, so that it is refused while Redis is full; GETEX comes only
-- where all were refused.

local wrote, refused

-- Answers the call whose keys stand behind KEYS[before], and its arguments behind ARGV[at];
-- and where it stands that its last key does.
local function answer(before, at)
  local n = tonumber(ARGV[at + 1])
  local last, us, tat = before + n
  if ARGV[at + 5] ~= '' then
    last = last + 1
    us = time[1] * 1000000 + time[2]
    tat = math.max(tonumber(call('GET', KEYS[last]) or 0), us) + n * ARGV[at + 5]
    local over = tat - us - ARGV[at + 6] * ARGV[at + 5]
    if over > 0 then
      local rec = call('GET', KEYS[before + 1])
      if rec then
        return 'issued ' .. stamp .. rec, last
      end
      refused = KEYS[last]
      return 'limited ' .. stamp .. string.format('%.0f', math.ceil(over)), last
    end
  end
  local rec = ARGV[at + 3] .. stamp .. ARGV[at + 4]
  for i = before + 1, before + n do
    if not call('SET', KEYS[i], rec, 'NX', 'EX', ARGV[at + 2]) then
      -- An earlier send has made the first, and with it all.
      return (i == before + 1 and 'issued ' or 'taken ') .. stamp .. call('GET', KEYS[i]), last
    end
    wrote = true
  end
  if tat then
    local left = math.max(1, math.ceil((tat - us) / 1000))
    call('SET', KEYS[last], string.format('%.0f', tat), 'PX', string.format('%.0f', left))
  end
  return 'issued ' .. stamp, last
end

local answers, last = {}, 0
for at = 0, #ARGV - 6, 6 do
  answers[#answers + 1], last = answer(last, at)
end
if refused and not wrote then
  call('GETEX', refused)
end
return answers
